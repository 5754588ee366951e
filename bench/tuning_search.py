# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The search that bench.tuning_cluster runs several ways, and what one run of it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bench.cluster_objects import Json
from demo.images import image_name
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.engines.tuning.algorithms import SearchTerms

DEVICES: Final = 2
"""Each is one core."""
PERCENT: Final = 25
TRIALS: Final = 9
EPOCHS: Final = 540
"""Of the trial that is never stopped; the first rung has a ninth of them."""


class Way(StrEnum):
    """How wide trials run."""

    DIVIDED = "divided"
    SHARES = "shares"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What a search came to: its makespan, and the trials and epochs that it ran."""

    makespan_s: float
    ran: frozenset[tuple[int, int]]
    resizes: int


def search(way: Way, name: str, namespace: str, epochs: int = EPOCHS) -> Json:
    """The TuningJob of one way; checkpoints are named after it.

    Args:
        way: How wide trials run.
        name: Of the TuningJob.
        namespace: Of the TuningJob.
        epochs: Of the trial that is never stopped.
    """
    values = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CHECKPOINT_DIR": "/checkpoints"}
    mounts = {"checkpoints": "/checkpoints", "tmp": "/tmp"}
    container = {
        "name": "train",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "digits.tune"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "96Mi"}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 20,
        "volumes": [
            {"name": "checkpoints", "hostPath": {"path": "/var/tmp", "type": "Directory"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    trial: Json = {"template": {"spec": pod}, "checkpoint": {"graceSeconds": 20}}
    spec: Json = {
        "algorithm": {
            "ref": "SyncHalving",
            "minEpochs": epochs // 9,
            "maxEpochs": epochs,
            "reductionFactor": 3,
            "seed": 1,
        },
        "objective": {"metric": "accuracy", "goal": "Maximize"},
        "searchSpace": [
            {"name": "rate", "type": "Float", "min": "1e-3", "max": "1", "log": True},
            {"name": "hidden", "type": "Int", "min": 128, "max": 512, "step": 8},
        ],
        "trials": TRIALS,
        "parallelism": DEVICES if way is Way.WHOLE else DEVICES * 100 // PERCENT,
        "trialTemplate": trial,
    }
    match way:
        case Way.DIVIDED:
            spec["resources"] = {"devices": DEVICES, "minPercent": PERCENT}
        case Way.SHARES:
            share = {"minPercent": PERCENT, "maxPercent": PERCENT}
            trial["gpu"] = {"mode": "Fractional", "share": share}
        case Way.WHOLE:
            pass
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TuningJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def terms(epochs: int = EPOCHS) -> SearchTerms:
    """What is searched, as the operator reads it.

    Args:
        epochs: Of the trial that is never stopped.
    """
    raw = search(Way.SHARES, "terms", "default", epochs)
    raw["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    return project_tuning_job(raw).terms
