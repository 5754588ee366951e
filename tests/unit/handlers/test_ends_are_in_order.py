# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is waited for and asked to go while an object ends, look by look, and never without end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.virtual_time import LoopClock, run_virtual
from ullage.api.contract import Reason
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import ObjectRef
from ullage.cluster.values.lives import KINDS_HELD
from ullage.handlers.ends import ASK_AGAIN_S, Ends, Left, Life, deleted_at
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
        ends = Ends(ClusterState(lambda _: None), submit=self._submit, epoch=lambda: 7, clock=clock)
        self._end = asyncio.create_task(ends.end(self.life, JOB, clock.now() - deleted_s))

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
        assert await rig.after(ASK_AGAIN_S - 0.1) == (["a"], [(False, "members first")])
        assert await rig.after(1.0) == (["a"], [])
        rig.left = Left()
        await rig.after(1.0)

    run_virtual(main())


@pytest.mark.parametrize("deleted_s", [0.0, 20.0, -10_000.0])
def test_what_does_not_end_in_time_is_left_alone_with_a_warning(deleted_s: float) -> None:
    """The next leader waits no longer than the first; a time to come counts from now."""

    async def main() -> None:
        rig, most_s = Rig(deleted_s=deleted_s), MOST_S - max(0.0, deleted_s)
        await rig.after(most_s - 0.1)
        assert not rig.over
        late = (True, "after 120 s members are left; they end in any order")
        assert await rig.after(1.0) == ([], [late])
        assert rig.over

    run_virtual(main())


@pytest.mark.parametrize(
    ("said", "expected"),
    [("1970-01-01T00:00:09Z", 9.0), ("yesterday", 0.0), (["2026"], 0.0), (None, 0.0)],
)
def test_a_deletion_at_no_time_was_long_ago(said: object, expected: float) -> None:
    assert deleted_at({"deletionTimestamp": said}) == expected
