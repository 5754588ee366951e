# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TuningJob and its TrainingJobs in memory: what steps ask for is done, late, twice or never."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from builders import a_job
from ullage.api.readers import section
from ullage.api.words import Goal, TuningAlgorithm
from ullage.cluster.codecs.status import tuning_as_stored
from ullage.cluster.projection.spec import read_gpu
from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.tuning import TrialPool, TuningRecord
from ullage.cluster.records.workload import TrialOf, WorkloadRecord
from ullage.engines.tuning.algorithms import SearchTerms
from ullage.engines.tuning.search_space import ChoiceParameter, FloatRange, IntRange, SearchSpace
from ullage.kube.manifests.trials import trial_body
from ullage.scheduling.tuning.step import Around, TuningStep, next_step

Score = Callable[[int, int], float | None]
"""Value of a trial at an epoch; ``None`` = it reports none."""
SPACE = SearchSpace(
    parameters={
        "lr": FloatRange(low=1e-4, high=0.1, log=True),
        "width": IntRange(low=16, high=128),
        "act": ChoiceParameter(options=("relu", "tanh")),
    }
)
TEMPLATE = json.dumps({"template": {"spec": {"containers": [{"name": "main", "image": "x:1"}]}}})
_BLANK = replace(a_job("blank").build(), checkpoint=True)


def a_search(
    algorithm: TuningAlgorithm = TuningAlgorithm.SYNC_HALVING,
    *,
    trials: int = 9,
    parallelism: int = 4,
    max_failed_trials: int = 10,
    pool: TrialPool | None = None,
    **terms: object,
) -> TuningRecord:
    """A TuningJob as it is read after its creation."""
    said = {"space": SPACE, "goal": Goal.MAXIMIZE, "max_epochs": 9, "eta": 3} | terms
    return TuningRecord(
        ref=ObjectRef(kind="TuningJob", namespace="team", name="digits", uid="uid-digits"),
        generation=1,
        resource_version="1",
        terms=SearchTerms(algorithm=algorithm, trials=trials, **said),  # type: ignore[arg-type]
        metric="accuracy",
        parallelism=parallelism,
        max_failed_trials=max_failed_trials,
        trial_template=TEMPLATE,
        pool=pool,
    )


@dataclass
class TuningWorld:
    """What the API shows; ``steps`` says what a process that sees it asks for."""

    job: TuningRecord
    score: Score = lambda trial, epoch: trial + epoch / 100
    runs: dict[str, WorkloadRecord] = field(default_factory=dict)
    now: float = 1_000.0
    created: int = 0
    """TrainingJobs that were created, those that came again included."""

    def step(self) -> TuningStep:
        """What is asked for now, by a process that knows nothing else."""
        return next_step(self.job, Around(runs=self.runs, now=self.now, epoch=1))

    def write(self, step: TuningStep) -> None:
        """The status is written and read back."""
        self.job = replace(self.job, status=tuning_as_stored(step.status))

    def create(self, step: TuningStep) -> None:
        """TrainingJobs appear; one that is there already stays as it is."""
        for one in step.creates:
            if one.name in self.runs:
                continue
            self.created += 1
            of = TrialOf(
                tuning_uid=one.owner.uid,
                trial=one.trial,
                until_epoch=one.until_epoch,
                parameters=one.parameters,
            )
            ref = ObjectRef(kind="TrainingJob", namespace="team", name=one.name, uid=one.name)
            gpu = read_gpu(section(trial_body(one, self.job), "spec"))
            self.runs[one.name] = replace(_BLANK, ref=ref, trial=of, created=self.now, gpu=gpu)

    def start(self, name: str) -> None:
        """The program of a TrainingJob starts."""
        run = self.runs[name]
        if not run.status.phase:
            status = WorkloadStatus(phase="Running", start_time=self.now)
            self.runs[name] = replace(run, status=status)

    def delete(self, step: TuningStep) -> None:
        """TrainingJobs go."""
        for one in step.deletes:
            self.runs.pop(one.owner.name, None)

    def carry_out(self) -> TuningStep:
        """A whole step, done at once."""
        step = self.step()
        self.create(step)
        self.delete(step)
        self.write(step)
        return step

    def end(self, name: str, *, failed: bool = False) -> None:
        """A TrainingJob ends, with what its program reports."""
        run = self.runs[name]
        of = run.trial
        if of is None or run.status.phase in ("Succeeded", "Failed"):
            return
        begun = run.status.start_time or self.now
        self.now += 1.0
        value = self.score(of.trial, of.until_epoch)
        told = () if value is None else (EpochValue(epoch=of.until_epoch, value=value),)
        status = replace(
            run.status,
            phase="Failed" if failed else "Succeeded",
            start_time=begun,
            completion_time=self.now,
            metrics=() if failed else told,
        )
        self.runs[name] = replace(run, status=status)

    def finish(self, most: int = 500) -> None:
        """Whatever runs ends at once, until the search does."""
        for _ in range(most):
            self.carry_out()
            if self.job.status.phase in ("Succeeded", "Failed"):
                self.carry_out()
                return
            for name in sorted(self.runs):
                self.end(name)
        raise AssertionError("the search does not end")


def counted(job: TuningRecord) -> Mapping[tuple[int, int], int]:
    """How often each trial and epoch stands among the results."""
    found: dict[tuple[int, int], int] = {}
    for one in job.status.results:
        at = one.trial, one.epoch
        found[at] = found.get(at, 0) + 1
    return found


def promoted(job: TuningRecord) -> frozenset[tuple[int, int]]:
    """Trials and epochs that they were let go on to."""
    return frozenset(counted(job))
