# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes are lost, doubled, late, TrainingJobs vanish: results count once, promotions are equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from fakes.tuning_world import TuningWorld, a_search, counted, promoted
from ullage.api.words import TuningAlgorithm
from ullage.cluster.records.tuning import TrialPool

ALGORITHMS = (TuningAlgorithm.SYNC_HALVING, TuningAlgorithm.RANDOM)


@st.composite
def _scores(draw: st.DrawFn) -> tuple[float | None, ...]:
    value = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
    return tuple(draw(st.lists(value, min_size=27, max_size=27)))


@given(
    data=st.data(),
    algorithm=st.sampled_from(ALGORITHMS),
    trials=st.integers(1, 9),
    parallelism=st.integers(1, 9),
    scores=_scores(),
    pool=st.none()
    | st.builds(
        TrialPool, devices=st.integers(2, 4), min_percent=st.sampled_from((8, 25, 33, 100))
    ),
)
@examples(40, 2_000)
def test_a_search_comes_to_the_same_end(
    data: st.DataObject,
    algorithm: TuningAlgorithm,
    trials: int,
    parallelism: int,
    scores: tuple[float | None, ...],
    pool: TrialPool | None,
) -> None:
    """A search that divides devices promotes the same trials as one that does not."""

    def score(trial: int, epoch: int) -> float | None:
        return scores[(trial * 3 + (1, 3, 9).index(epoch)) % len(scores)]

    def a_world(pool: TrialPool | None) -> TuningWorld:
        most = {"parallelism": parallelism, "max_failed_trials": trials}
        return TuningWorld(a_search(algorithm, trials=trials, pool=pool, **most), score=score)

    calm = a_world(None)
    calm.finish()
    wild = a_world(pool)
    held = wild.step()
    for act in data.draw(st.lists(st.sampled_from("sscwdexfrt"), max_size=60)):
        match act:
            case "s":  # a process looks, perhaps a new one
                held = wild.step()
            case "c":  # what was asked for arrives, perhaps again
                wild.create(held)
            case "d":
                wild.delete(held)
            case "w":  # an old status is refused by its version
                if held.status.results[: len(wild.job.status.results)] == wild.job.status.results:
                    wild.write(held)
            case "e" | "f" if wild.runs:  # a TrainingJob ends
                wild.end(data.draw(st.sampled_from(sorted(wild.runs))))
            case "r" if wild.runs:  # one starts
                wild.start(data.draw(st.sampled_from(sorted(wild.runs))))
            case "t":
                wild.now += data.draw(st.sampled_from((1.0, 61.0, 3_600.0)))
            case "x" if wild.runs:  # someone deletes a TrainingJob
                wild.runs.pop(data.draw(st.sampled_from(sorted(wild.runs))))
        over = ("Succeeded", "Failed")
        running = [one for one in wild.runs.values() if one.status.phase not in over]
        assert len(running) <= 2 * parallelism
    wild.finish()
    assert set(counted(wild.job).values()) == {1}
    assert promoted(wild.job) == promoted(calm.job)
    assert wild.job.status.phase == calm.job.status.phase
    assert wild.job.status.best_trial == calm.job.status.best_trial
