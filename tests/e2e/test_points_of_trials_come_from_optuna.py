# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""On a real cluster: a study outside runs its trials here, and so does the operator's estimator."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from typing import Any

from kubernetes import client, config

from e2e.stack import Json, Stack, busy_template, eventually, share
from optuna_study import Study, Trials

PROGRAM = """
from ullage_run import tuning
rate, epoch = tuning.number("rate", 0.1), tuning.epochs(1)
tuning.report(epoch, 1 - abs(rate - 0.3) + epoch / 1000)
"""
"""The best rate is 0.3."""


def search(name: str, namespace: str, algorithm: Json, **spec: Any) -> Json:
    template = busy_template(container={"command": ["python3", "-c", PROGRAM]})
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TuningJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "algorithm": algorithm,
            "objective": {"metric": "score", "goal": "Maximize"},
            "searchSpace": [{"name": "rate", "type": "Float", "min": 0, "max": 1}],
            "trialTemplate": {"template": template, "gpu": share(20)},
            **spec,
        },
    }


def ended(stack: Stack, name: str, namespace: str, within_s: float) -> Json:
    def look() -> Json | None:
        status = stack.status("tuningjob", name, namespace)
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    return eventually(look, within_s=within_s, what=f"{name} ends")


def test_a_study_outside_runs_its_trials_in_the_cluster(stack: Stack, namespace: str) -> None:
    stack.apply(
        search("outside", namespace, {"ref": "External", "maxEpochs": 3}, trials=10, suggestions=[])
    )
    config.load_kube_config(str(stack.cluster.kubeconfig))
    trials = Trials(client.CustomObjectsApi(), namespace, "outside")
    trials.suggest(0, {"rate": 0.9}, epochs=[1])
    eventually(lambda: trials.results() or None, within_s=90, what="the first result")
    trials.prolong(0, 3)
    study = Study(trials)
    study.run(4, parallel=3)
    status = ended(stack, "outside", namespace, within_s=60)
    assert status["phase"] == "Succeeded"
    reached = {(one.trial, one.epoch) for one in trials.results()}
    assert reached == {(0, 1), (0, 3), (1, 3), (2, 3), (3, 3)}
    assert study.study.best_trial.number == status["bestTrial"]["trial"]
    stack.books_balance()


def test_the_estimator_suggests_once_enough_is_known(stack: Stack, namespace: str) -> None:
    stack.apply(search("tpe", namespace, {"ref": "TPE", "maxEpochs": 1}, trials=14, parallelism=4))
    status = ended(stack, "tpe", namespace, within_s=400)
    assert status["phase"] == "Succeeded"
    assert len(status["results"]) == 14
    rates = {one["parameters"]["rate"] for one in status["results"]}
    assert len(rates) == 14
    told = subprocess.run(
        [
            sys.executable, "-m", "ullage.cli.main", "--kubeconfig", str(stack.cluster.kubeconfig),
            "tuning", "tpe", "-n", namespace, "-o", "csv",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(told.stdout)))
    assert {row["params_rate"] for row in rows} == rates
    assert {row["state"] for row in rows} == {"Complete"}
    stack.books_balance()
