# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members with a real torch model are killed and join; losses and state are those of one alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fakes.toy_group import SHARDS, ToyJob, ToyMember
from ullage_coordinator.state_store import Store
from ullage_run.frames import Buffer, Ending
from ullage_run.orders import Assignment
from ullage_run.torch_state import TorchState

torch = pytest.importorskip("torch", reason="torch is not installed: the adapter is not tried")

torch.set_num_threads(1)
STEPS = 16
FIRST = ("r0", "s1", "s2", "s3")
PARTS = 4
Model = tuple[Any, Any, TorchState]
INTO: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.02, amsgrad=True),
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
}


class LockedState(TorchState):
    """Members are threads here: one at a time uses the generators that all threads have."""

    lock = threading.Lock()

    def _compute(self, *what: Any) -> dict[str, object]:
        with self.lock:
            return super()._compute(*what)


def built(seed: int, kind: str = "adamw", dtype: Any = None) -> Model:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 12),
        torch.nn.BatchNorm1d(12),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(12, 12),
        torch.nn.Linear(12, 3),
    ).to(dtype or torch.float32)
    optimizer = INTO[kind](model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.7)
    state = LockedState(model, optimizer, scheduler, shards=SHARDS, parts=PARTS, seed=5)
    return model, optimizer, state


def loss(model: Any, step: int, part: int) -> Any:
    draw = torch.Generator().manual_seed(1000 * step + part)
    dtype = next(model.parameters()).dtype
    samples = torch.randn(8, 6, generator=draw).to(dtype)
    labels = torch.randint(3, (8,), generator=draw)
    return torch.nn.functional.cross_entropy(model(samples), labels)


class Alone:
    """A group of one, without coordinator."""

    epoch = 1
    assignment = Assignment(
        shards=tuple(range(SHARDS)), blocks=tuple(range(6)), block_count=6, members=("one",)
    )

    def gather(self, data: Buffer) -> dict[str, bytes]:
        return {"one": bytes(data)}


def undisturbed(steps: int, kind: str, dtype: Any = None) -> tuple[list[float], dict[int, bytes]]:
    model, _, state = built(1, kind, dtype)
    group = Alone()
    losses = [
        state.step(group, step, lambda part, at=step: loss(model, at, part))
        for step in range(1, steps + 1)
    ]
    return losses, {shard: bytes(state.values(shard)) for shard in range(SHARDS)}


class TorchMember(ToyMember):
    """A member with a torch model; who comes later has begun with other numbers."""

    def __post_init__(self) -> None:
        seed = 1 if self.name in FIRST else 99
        job: Any = self.rig
        self.model, self.optimizer, held = built(seed, *job.what)
        self.torch_state = held
        self.state: Any = held
        self.losses: dict[int, float] = {}
        super().__post_init__()

    def _train(self, step: int) -> None:
        self.hook(self, step, "before")
        struck = False

        def part_of(part: int) -> Any:
            nonlocal struck
            if not struck:
                struck = True
                self.hook(self, step, "between")
            return loss(self.model, step, part)

        self.losses[step] = self.torch_state.step(self.group, step, part_of)
        self.steps.append(step)
        self.hook(self, step, "after")


class TorchJob(ToyJob):
    """State store, coordinator and members with torch."""

    def __init__(self, kind: str = "adamw", dtype: Any = None, steps: int = STEPS) -> None:
        self.what = (kind, dtype)
        self.steps = steps
        super().__init__(store=Store(1 << 20))

    def start(self, hook: Callable[[ToyMember, int, str], None], *names: str) -> None:
        for name in names or FIRST:
            self.members.append(
                TorchMember(
                    rig=self, name=name, reliable=name[0] == "r", until=self.steps, hook=hook
                )
            )

    def end(self) -> tuple[list[float], dict[int, bytes]]:
        """Losses by step and the whole state, which all members that are left agree about."""
        self._thread.join(90)
        assert not self._thread.is_alive(), f"the job hangs: {self.events[-5:]}"
        assert self.error is None
        assert self.ending is Ending.FINISHED
        states, losses = [], {}
        for one in self.members:
            one.thread.join(10)
            assert isinstance(one, TorchMember)
            if one.ending is Ending.FINISHED:
                states.append(
                    {shard: bytes(one.torch_state.values(shard)) for shard in range(SHARDS)}
                )
                losses |= one.losses
        assert states
        assert all(state == states[0] for state in states)
        return [losses[step] for step in sorted(losses)], states[0]


def test_undisturbed_members_end_as_one_alone_does() -> None:
    with TorchJob() as job:
        job.start(lambda *_: None)
        assert job.end() == undisturbed(STEPS, "adamw")


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_an_owner_that_is_killed_costs_two_steps_and_no_bit(moment: str, kind: str) -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 8 and now == moment and one.group.shards and not struck.is_set():
            struck.set()
            one.die()

    with TorchJob(kind) as job:
        job.start(strike)
        losses, state = job.end()
        assert struck.is_set()
        lost = [int(str(one["lostSteps"])) for one in job.seen("Recovered")]
        assert lost
        assert max(lost) <= 2
    expected_losses, expected_state = undisturbed(STEPS, kind)
    assert state == expected_state
    assert losses == expected_losses


def test_a_newcomer_with_other_weights_has_those_of_the_job() -> None:
    joined = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step == 6 and now == "after" and not joined.is_set():
            joined.set()
            job.start(strike, "s7")
        if step == 12 and now == "between" and one.name == "s1":
            one.die()

    with TorchJob() as job:
        job.start(strike)
        losses, state = job.end()
        assert any(one.name == "s7" and one.steps for one in job.members)
    assert (losses, state) == undisturbed(STEPS, "adamw")


def test_all_die_and_programs_that_begin_anew_go_on_in_bfloat16() -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step == 9 and now == "between" and not struck.is_set():
            struck.set()
            for other in list(job.members):
                other.die()

    with TorchJob("adamw", torch.bfloat16) as job:
        job.start(strike)
        assert struck.wait(40)
        job.start(strike, "r9", "s8", "s9")
        losses, state = job.end()
    expected_losses, expected_state = undisturbed(STEPS, "adamw", torch.bfloat16)
    assert state == expected_state
    assert losses == expected_losses[-len(losses) :]
