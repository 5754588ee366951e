# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An Optuna study outside the cluster asks for trials and reads what they reached."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from builders_raw import Raw, raw_tuning_job
from optuna_study import Result, Study, Trials, as_text, distributions
from ullage.cluster.projection.tuning import project_tuning_job

Score = Callable[[dict[str, str], int], float | None]
SPACE = [
    {"name": "lr", "type": "Float", "min": "1e-4", "max": "0.1", "log": True},
    {"name": "width", "type": "Int", "min": 16, "max": 128},
    {"name": "drop", "type": "Float", "min": "0", "max": "0.5", "step": "0.1"},
    {"name": "act", "type": "Categorical", "values": ["relu", "tanh"]},
]
LAST = 9


def score(parameters: dict[str, str], epoch: int) -> float | None:
    return float(parameters["lr"]) + epoch / 1000


@dataclass
class OneTuningJob:
    """The API with one TuningJob; each look ends what was asked for at the look before."""

    score: Score = score
    job: Raw = field(
        default_factory=lambda: raw_tuning_job(
            algorithm={"ref": "External", "maxEpochs": LAST},
            searchSpace=SPACE,
            trials=100,
            suggestions=[],
            status={"results": []},
        )
    )
    most_at_once: int = 0

    def get_namespaced_custom_object(self, *, namespace: str, name: str, **of: str) -> Any:
        assert (namespace, name) == ("default", "digits")
        assert of == {"group": "ullage.dev", "version": "v1alpha1", "plural": "tuningjobs"}
        found = copy.deepcopy(self.job)
        results = self.job["status"]["results"]
        done = {(one["trial"], one["epoch"]) for one in results}
        due = [
            (one, epoch)
            for one in self.job["spec"]["suggestions"]
            for epoch in one.get("epochs", [LAST])
            if (one["trial"], epoch) not in done
        ]
        self.most_at_once = max(self.most_at_once, len(due))
        for one, epoch in due:
            value = self.score(one["parameters"], epoch)
            result: Raw = {"trial": one["trial"], "epoch": epoch}
            said = {"reason": "TrialFailed"} if value is None else {"value": repr(value)}
            results.append(result | said)
        return found

    def patch_namespaced_custom_object(
        self, *, namespace: str, name: str, body: object, **of: str
    ) -> Any:
        del namespace, name
        assert of["_content_type"] == "application/json-patch+json"
        assert isinstance(body, list)
        for step in body:
            *path, last = step["path"].strip("/").split("/")
            at: Any = self.job
            for word in path:
                at = at[int(word) if isinstance(at, list) else word]
            if step["op"] == "test":
                assert at[last] == step["value"]
            elif last == "-":
                at.append(step["value"])
            else:
                at[last] = step["value"]
        stated = self.job["spec"]["suggestions"]
        assert len({one["trial"] for one in stated}) == len(stated)  # as the API's list-map does


def trials(api: OneTuningJob) -> Trials:
    return Trials(api, "default", "digits")


def test_a_study_runs_its_trials_in_the_cluster() -> None:
    api = OneTuningJob()
    study = Study(trials(api), seed=3)
    study.run(14, parallel=4, look_s=0.0)
    stated = api.job["spec"]["suggestions"]
    assert [one["trial"] for one in stated] == list(range(14))
    assert api.job["spec"]["suggestionsEnded"] is True
    assert api.most_at_once <= 4
    best = max(stated, key=lambda one: float(one["parameters"]["lr"]))
    assert study.study.best_trial.number == best["trial"]
    assert study.study.best_value == pytest.approx(float(best["parameters"]["lr"]) + LAST / 1000)
    read = project_tuning_job(api.job).terms.stated
    assert [(one.trial, one.refused) for one in read] == [(at, "") for at in range(14)]


def test_a_study_that_is_started_again_goes_on() -> None:
    api = OneTuningJob()
    first = Study(trials(api), seed=3)
    for _ in range(3):
        first.ask()
    first.tell(trials(api).read())
    again = Study(trials(api), seed=4)
    assert [one.params for one in again.study.trials] == [one.params for one in first.study.trials]
    again.run(6, parallel=2, look_s=0.0)
    assert [one["trial"] for one in api.job["spec"]["suggestions"]] == list(range(6))
    assert [one.state for one in again.study.trials] == [TrialState.COMPLETE] * 6


def test_numbers_that_are_missing_stay_missing() -> None:
    api = OneTuningJob()
    trials(api).suggest(2, {"lr": 0.01, "width": 32, "drop": 0.1, "act": "relu"})
    study = Study(trials(api))
    assert study.ask() == 3
    assert [one.state for one in study.study.trials][:2] == [TrialState.FAIL] * 2


def test_a_trial_without_a_value_fails_and_the_study_goes_on() -> None:
    api = OneTuningJob(score=lambda parameters, epoch: None)
    study = Study(trials(api))
    study.run(3, parallel=3, look_s=0.0)
    assert [one.state for one in study.study.trials] == [TrialState.FAIL] * 3


def test_a_search_of_ones_own_lets_good_trials_go_on() -> None:
    api = OneTuningJob(score=lambda parameters, epoch: epoch + float(parameters["lr"]))
    mine = trials(api)
    for at, rate in enumerate((0.001, 0.1)):
        mine.suggest(at, {"lr": rate, "width": 16, "drop": 0.0, "act": "tanh"}, epochs=[1])
    mine.read()
    best = max(mine.results(), key=lambda one: one.value or 0.0)
    assert best == Result(trial=1, epoch=1, value=1.1, reason="")
    mine.prolong(best.trial, 3)
    mine.read()
    assert [(one.trial, one.epoch) for one in mine.results()] == [(0, 1), (1, 1), (1, 3)]
    assert project_tuning_job(api.job).terms.stated[1].epochs == (1, 3)


def test_a_job_that_has_ended_ends_the_study() -> None:
    api = OneTuningJob()
    api.job["status"]["phase"] = "Failed"
    Study(trials(api)).run(5, parallel=1, look_s=0.0)
    assert api.job["spec"]["suggestions"] == []


def test_the_space_is_that_of_the_tuning_job() -> None:
    found = distributions({"spec": {"searchSpace": SPACE}})
    assert found == {
        "lr": optuna.distributions.FloatDistribution(1e-4, 0.1, log=True),
        "width": optuna.distributions.IntDistribution(16, 128),
        "drop": optuna.distributions.FloatDistribution(0.0, 0.5, step=0.1),
        "act": optuna.distributions.CategoricalDistribution(["relu", "tanh"]),
    }
    assert as_text(1e-7) == "1e-07"
