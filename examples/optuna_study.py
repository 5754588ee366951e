# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An Optuna study that runs anywhere and whose trials run in the cluster.

A TuningJob with the algorithm ``External`` and an empty list of suggestions runs the trials that it
is given::

    pip install optuna 'kubernetes>=37'
    python optuna_study.py digits-study --trials 20 --parallel 4

The study may be stopped and started again: what it suggested and what trials reached stands in the
TuningJob. Another search takes Optuna's place by the methods of :class:`Trials`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

GROUP: Final = {"group": "ullage.dev", "version": "v1alpha1", "plural": "tuningjobs"}
LOOK_S: Final = 2.0
OVER: Final = ("Succeeded", "Failed")
Values = Mapping[str, int | float | str]


class Objects(Protocol):
    """The calls of ``kubernetes.client.CustomObjectsApi`` that are used here."""

    def get_namespaced_custom_object(self, *, namespace: str, name: str, **of: str) -> Any:
        """Read an object."""
        ...

    def patch_namespaced_custom_object(
        self, *, namespace: str, name: str, body: object, **of: str
    ) -> Any:
        """Patch an object; a body that is a list is a JSON patch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a trial reached at an epoch; ``value`` is ``None`` where it failed."""

    trial: int
    epoch: int
    value: float | None
    reason: str


class Trials:
    """The trials of a TuningJob, asked for and read from outside.

    Args:
        objects: The API.
        namespace: Of the TuningJob.
        name: Of the TuningJob.
    """

    def __init__(self, objects: Objects, namespace: str, name: str) -> None:
        self._objects = objects
        self._at = {"namespace": namespace, "name": name, **GROUP}

    def read(self) -> dict[str, Any]:
        """The TuningJob."""
        found: dict[str, Any] = self._objects.get_namespaced_custom_object(**self._at)
        return found

    def suggest(self, trial: int, values: Values, epochs: Sequence[int] = ()) -> None:
        """Ask for a trial.

        Args:
            trial: Its number, which no other has; the API refuses it otherwise.
            values: By name of the parameter.
            epochs: Where results are wanted, rising; by default after the last epoch.
        """
        body: dict[str, object] = {
            "trial": trial,
            "parameters": {name: as_text(value) for name, value in values.items()},
        }
        if epochs:
            body["epochs"] = list(epochs)
        self._patch([{"op": "add", "path": "/spec/suggestions/-", "value": body}])

    def prolong(self, trial: int, epoch: int) -> None:
        """Let a trial go on from its checkpoint to a later epoch."""
        stated = [one["trial"] for one in self.read()["spec"]["suggestions"]]
        at = f"/spec/suggestions/{stated.index(trial)}"
        self._patch(
            [
                {"op": "test", "path": f"{at}/trial", "value": trial},
                {"op": "add", "path": f"{at}/epochs/-", "value": epoch},
            ]
        )

    def end(self) -> None:
        """Say that no more trials come: the search ends with those that there are."""
        self._patch([{"op": "add", "path": "/spec/suggestionsEnded", "value": True}])

    def results(self) -> list[Result]:
        """Every result so far, in the order in which they were counted."""
        return results_of(self.read())

    def _patch(self, patch: list[dict[str, object]]) -> None:
        self._objects.patch_namespaced_custom_object(
            **self._at, body=patch, _content_type="application/json-patch+json"
        )


def results_of(job: Mapping[str, Any]) -> list[Result]:
    """Every result of a TuningJob as it was read."""
    return [
        Result(
            trial=one["trial"],
            epoch=one["epoch"],
            value=float(one["value"]) if "value" in one else None,
            reason=one.get("reason", ""),
        )
        for one in job.get("status", {}).get("results", ())
    ]


def as_text(value: float | str) -> str:
    """A value as the API takes it: numbers to the last digit."""
    return repr(value) if isinstance(value, float) else str(value)


def distributions(job: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """The search space of a TuningJob as Optuna knows it."""
    return {one["name"]: _distribution(one) for one in job["spec"]["searchSpace"]}


def _distribution(stated: Mapping[str, Any]) -> BaseDistribution:
    if stated["type"] == "Categorical":
        return CategoricalDistribution(stated["values"])
    log, step = stated.get("log", False), stated.get("step")
    if stated["type"] == "Int":
        return IntDistribution(int(stated["min"]), int(stated["max"]), log=log, step=int(step or 1))
    return FloatDistribution(
        float(stated["min"]),
        float(stated["max"]),
        log=log,
        step=None if step is None else float(step),
    )


class Study:
    """An Optuna study whose trials are those of a TuningJob, by the same numbers.

    Args:
        trials: Of the TuningJob.
        seed: Of the sampler.
    """

    def __init__(self, trials: Trials, seed: int = 0) -> None:
        self._trials = trials
        job = trials.read()
        self._space = distributions(job)
        goal = job["spec"]["objective"]["goal"]
        self.study = optuna.create_study(
            direction="maximize" if goal == "Maximize" else "minimize",
            sampler=optuna.samplers.TPESampler(seed=seed),
        )
        self._take_up(job)

    def _take_up(self, job: Mapping[str, Any]) -> None:
        """Go on with what was suggested before."""
        for one in sorted(job["spec"].get("suggestions", ()), key=lambda one: one["trial"]):
            while len(self.study.get_trials(deepcopy=False)) < one["trial"]:
                self.study.tell(self.study.ask(), state=TrialState.FAIL)  # a number left out
            self.study.enqueue_trial(
                {name: _value(self._space[name], said) for name, said in one["parameters"].items()}
            )
            self.study.ask(self._space)
        self.tell(job)

    def ask(self) -> int:
        """Suggest one more trial; returns its number."""
        trial = self.study.ask(self._space)
        self._trials.suggest(trial.number, trial.params)
        number: int = trial.number
        return number

    def tell(self, job: Mapping[str, Any]) -> int:
        """Take in the results of a TuningJob as it was read; returns how many trials run."""
        for one in results_of(job):
            known = self.study.get_trials(deepcopy=False)[one.trial].state
            if known is TrialState.RUNNING and one.value is None:
                self.study.tell(one.trial, state=TrialState.FAIL)
            elif known is TrialState.RUNNING:
                self.study.tell(one.trial, one.value)
        states = [one.state for one in self.study.get_trials(deepcopy=False)]
        return states.count(TrialState.RUNNING)

    def run(self, most: int, parallel: int, look_s: float = LOOK_S) -> None:
        """Suggest until so many trials were suggested, and wait for their ends.

        Args:
            most: Trials of the study.
            parallel: That run at a time.
            look_s: Seconds between two looks at the TuningJob.
        """
        while True:
            job = self._trials.read()
            running = self.tell(job)
            asked = len(self.study.get_trials(deepcopy=False))
            if job.get("status", {}).get("phase") in OVER:
                return
            for _ in range(min(parallel - running, most - asked)):
                self.ask()
            if running == 0 and asked >= most:
                self._trials.end()
                return
            time.sleep(look_s)


def _value(distribution: BaseDistribution, said: str) -> Any:
    if isinstance(distribution, IntDistribution):
        return int(said)
    return float(said) if isinstance(distribution, FloatDistribution) else said


def main(words: Sequence[str] | None = None) -> int:
    """Run a study; the exit status is 1 where no trial has a value."""
    parser = argparse.ArgumentParser(description="An Optuna study whose trials run in the cluster.")
    parser.add_argument("name", help="TuningJob with the algorithm External")
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    kubernetes: Any = importlib.import_module("kubernetes")
    kubernetes.config.load_config()
    objects: Objects = kubernetes.client.CustomObjectsApi()
    study = Study(Trials(objects, options.namespace, options.name), options.seed)
    study.run(options.trials, options.parallel)
    done = [one for one in study.study.trials if one.state is TrialState.COMPLETE]
    if not done:
        print("no trial has a value")
        return 1
    print(f"best: trial {study.study.best_trial.number}, {study.study.best_value}")
    print(study.study.best_params)
    return 0


if __name__ == "__main__":
    sys.exit(main())
