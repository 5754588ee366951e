# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a gang, its progress goes back only to a step that it did resume at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import NOW, a_gpu_node, a_job, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import Progress

CI = settings(max_examples=60, deadline=None, derandomize=True)
MEMBERS = 2

events = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 400)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, MEMBERS)),
    st.tuples(st.just("silence"), st.integers(0, MEMBERS - 1)),
)


@dataclass
class Gang:
    """A gang that saves now and then, counts from 0 at every start, and says where it resumed."""

    base: int = 0
    steps: int = 0
    saved: int = 0
    deaf: set[int] = field(default_factory=set)
    mute: int = -1
    """A member whose program does not say where it resumed."""

    def happens(self, what: str, value: int) -> None:
        self.deaf = {value} if what == "silence" else set()
        if what == "step":
            self.steps += value
        elif what == "save":
            self.saved = self.base + self.steps
        elif what == "restart":
            self.base, self.steps, self.mute = self.saved, 0, value


@pytest.mark.slow
@CI
@given(st.lists(events, min_size=2, max_size=14))
def test_progress_is_monotone_unless_a_start_resumed_lower(happened: list[tuple[str, int]]) -> None:
    job, gang, at = a_job().gang(MEMBERS).with_(work_steps=5_000), Gang(), NOW
    before: Progress | None = None
    peak = 0
    for what, value in happened:
        gang.happens(what, value)
        at += 100
        pods = job.pods(PodStage.RUNNING, node="node-1")
        held = [a_slice(pod, device=gpu("node-1", n), percent=100) for n, pod in enumerate(pods)]
        observed = [
            replace(
                reported(one, SlicePhase.ATTACHED, steps=gang.steps + n, step_micros=250_000),
                resumed_at=0 if n == gang.mute else gang.base,
            )
            for n, one in enumerate(held)
            if n not in gang.deaf
        ]
        found = decided(job, *pods, a_gpu_node(desired=held, observed=observed), at=at).status(job)
        now = found.progress
        if now is not None:
            peak = max(peak, gang.base + gang.steps)
            assert now.steps <= peak
            if gang.steps > 1 and not gang.deaf:
                assert now.steps <= gang.base + gang.steps, "a start that resumed lower is told"
            lower = before is not None and now.steps < before.steps
            assert not lower or (now.resumed_at == gang.base and now.resumed_at <= now.steps)
        else:
            assert before is None
        job = job.with_(status=as_stored(job.build().kind, found))
        before = now
