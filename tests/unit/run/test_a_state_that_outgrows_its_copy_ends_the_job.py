# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A push that does not fit ends the job of all members, with the limit and the setting."""

from __future__ import annotations

from fakes.toy_group import BYTES, SHARDS, STATE_BYTES, ToyJob, ToyMember
from ullage_coordinator.state_store import Store
from ullage_run.backup import StateTooLarge
from ullage_run.frames import Ending

GROWS_AT = 10
NAMES = ("r0", "s1", "s2", "s3")


class Grown:
    """A state whose shards take more bytes from a step on."""

    def __init__(self, one: ToyMember) -> None:
        self._values = one.state.values
        self._one = one

    def values(self, shard: int) -> bytes:
        more = b"+" if self._one.steps and self._one.steps[-1] >= GROWS_AT else b""
        return bytes(self._values(shard)) + more


def test_every_member_and_the_coordinator_say_what_to_raise() -> None:
    with ToyJob(store=Store(STATE_BYTES)) as job:
        members = [job.member(name, until=10_000, reliable=name == "r0") for name in NAMES]
        for one in members:
            one.state.values = Grown(one).values  # type: ignore[method-assign]
        job.finish()
        assert job.ending is Ending.TOO_LARGE
        told = str(job.seen("StateTooLarge")[0]["reason"])
        assert f"limit is {STATE_BYTES} bytes" in told
        assert "spec.elasticity.backup.stateBytes" in told
        for one in members:
            assert isinstance(one.error, StateTooLarge), one.error
            assert f"limit is {STATE_BYTES} bytes" in str(one.error)
        held = job.store.held().committed
        assert held is not None, "the last copy that fitted is whole"
        sizes = [len(job.store.shard(number)[2]) for number in range(SHARDS)]  # type: ignore[index]
        assert sizes == [BYTES] * SHARDS
