# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is waited for and asked to go while an object ends, look by look, and never without end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.pool_scaling import leader_of
from fakes.virtual_time import LoopClock, run_virtual
from ullage.api.reasons import Reason
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.lives import KINDS_HELD, MOST_OF_NAMESPACE, deleted_at
from ullage.handlers.ends import TOLD_AT_ONCE, Left, Life, end, tell_unheld
from ullage.handlers.mirror import Mirror
from ullage.handlers.times import END_EVENT_S, END_LEAST_S, END_RETRY_S
from ullage.ports import TRAINING_JOB
from ullage.scheduling.model.plan import Action, DeleteChild, DeletePod, Emit

JOB = ObjectRef(kind="TrainingJob", namespace="team", name="train", uid="uid-train")


def child(name: str, kind: str = "Pod") -> ObjectRef:
    return ObjectRef(kind=kind, namespace="team", name=name, uid=f"uid-{name}")


MOST_S = KINDS_HELD[TRAINING_JOB]


class Rig:
    """An object that ends; ``left`` is what is seen of it."""

    def __init__(self, *, deleted_s: float = 0.0) -> None:
        """``deleted_s`` is for how long it has been deleted."""
        self.left = Left(text="members are", begins="members first", goes=(child("a"),))
        clock = LoopClock()
        self.sent: list[Action] = []
        self.life = Life(
            kind=TRAINING_JOB,
            reason=Reason.LEAD_ENDS,
            lives=lambda _: True,
            left=lambda *_: self.left,
        )
        leader = leader_of(ClusterState(lambda _: None), clock, submit=self._submit)
        self._end = asyncio.create_task(end(leader, self.life, JOB, clock.now() - deleted_s))

    def _submit(self, actions: Sequence[Action]) -> None:
        self.sent += actions

    async def after(self, seconds: float) -> tuple[list[str], list[tuple[bool, str]]]:
        """Names of what was asked to go, and what was told, in this time."""
        self.sent.clear()
        await asyncio.sleep(seconds)
        deletions = [one for one in self.sent if isinstance(one, (DeletePod, DeleteChild))]
        assert {one.epoch for one in deletions} <= {7}
        goes = [one.pod if isinstance(one, DeletePod) else one.child for one in deletions]
        told = [(one.warning, one.text) for one in self.sent if isinstance(one, Emit)]
        return [one.name for one in goes], told

    @property
    def over(self) -> bool:
        return self._end.done()


def test_what_is_due_is_asked_to_go_once_and_told_once() -> None:
    async def main() -> None:
        rig, router = Rig(), child("b", kind="Deployment")
        rig.left = replace(rig.left, goes=(child("a"), router))
        assert await rig.after(0.1) == (["a", "b"], [(False, "members first")])
        rig.left = replace(rig.left, goes=(router,))
        assert await rig.after(1.0) == ([], [])
        rig.left = Left(text="its lead is", begins="the lead goes", goes=(child("lead"),))
        assert await rig.after(1.0) == (["lead"], [(False, "the lead goes")])
        assert not rig.over
        rig.left = Left()
        assert await rig.after(1.0) == ([], [])
        assert rig.over

    run_virtual(main())


def test_what_is_still_there_is_asked_again() -> None:
    async def main() -> None:
        rig = Rig()
        assert await rig.after(END_RETRY_S - 0.1) == (["a"], [(False, "members first")])
        assert await rig.after(1.0) == (["a"], [])
        rig.left = Left()
        await rig.after(1.0)

    run_virtual(main())


@pytest.mark.parametrize(
    "deleted_s", [0.0, 20.0, MOST_S - END_LEAST_S, MOST_S, 600.0, -1e4, -math.inf]
)
def test_what_does_not_end_in_time_is_left_alone_with_a_warning(deleted_s: float) -> None:
    """The next leader waits no longer than the first, but for a while; the future counts as now."""

    async def main() -> None:
        rig, most_s = Rig(deleted_s=deleted_s), max(MOST_S - max(0.0, deleted_s), END_LEAST_S)
        names, _ = await rig.after(most_s - 0.1)
        assert names, "however late, what is due is asked to go"
        assert not rig.over
        waited = max(0.0, deleted_s) + most_s
        late = (True, f"after {waited:.0f} s members are left; nothing waits for them now")
        assert await rig.after(1.0) == ([], [late])
        assert rig.over

    run_virtual(main())


@pytest.mark.parametrize(
    ("created", "deleted", "expected"),
    [
        ("1970-01-01T00:00:01Z", "1970-01-01T00:00:09Z", 9.0),
        ("1970-01-01T00:00:09Z", "1970-01-01T00:00:09Z", 9.0),
        (None, "1970-01-01T00:00:09Z", 9.0),
        ("1970-01-01T00:00:09Z", "1970-01-01T00:00:08Z", math.inf),
        (None, "0001-01-01T00:00:00Z", math.inf),
        (7, "1970-01-01T00:00:09Z", math.inf),
        ("1970-01-01T00:00:01Z", "yesterday", math.inf),
        ("1970-01-01T00:00:01Z", ["2026"], math.inf),
        ("1970-01-01T00:00:01Z", None, math.inf),
    ],
)
def test_a_deletion_at_no_sensible_time_is_waited_for_from_now_on(
    created: object, deleted: object, expected: float
) -> None:
    metadata = {"creationTimestamp": created, "deletionTimestamp": deleted}
    assert deleted_at(metadata) == expected


def test_owners_of_objects_beyond_the_bound_are_told_once_and_a_few_at_a_time() -> None:
    async def main() -> None:
        mirror, sent = Mirror({TRAINING_JOB: lambda _: True}), list[Action]()
        leader = leader_of(ClusterState(lambda _: None), LoopClock(), submit=sent.extend)

        def put(number: int) -> None:
            metadata = {"name": f"j{number}", "namespace": "team", "uid": f"u{number}"}
            mirror.upsert(TRAINING_JOB, {"metadata": metadata})

        def told() -> list[str]:
            assert {one.reason for one in sent if isinstance(one, Emit)} <= {Reason.ENDS_UNORDERED}
            return [one.target.name for one in sent if isinstance(one, Emit)]

        for number in range(MOST_OF_NAMESPACE + TOLD_AT_ONCE + 2):
            put(number)
        telling = asyncio.create_task(tell_unheld(leader, mirror))
        await asyncio.sleep(0.1)
        assert len(told()) == TOLD_AT_ONCE
        await asyncio.sleep(10 * END_EVENT_S)
        beyond = {f"j{MOST_OF_NAMESPACE + number}" for number in range(TOLD_AT_ONCE + 2)}
        assert len(told()) == len(beyond)
        assert set(told()) == beyond
        telling.cancel()

    run_virtual(main())
