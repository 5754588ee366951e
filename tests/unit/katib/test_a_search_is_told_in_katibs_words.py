# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Search space, results and states as messages of Katib."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from builders_raw import Raw, raw_tuning_job
from ullage.api.readers import WireError
from ullage_katib.messages import KatibAlgorithm, experiment_of, request_of
from ullage_katib.search import KatibSearch, read_search

TPE = KatibAlgorithm(name="tpe", settings=(("random_state", "7"),))
EXTERNAL: Raw = {"ref": "External", "maxEpochs": 9}


def a_search(*, status: Raw | None = None, **spec: object) -> KatibSearch:
    return read_search(raw_tuning_job(status=status, **{"algorithm": EXTERNAL, **spec}))


def as_dict(message: Any) -> Raw:
    return MessageToDict(message, preserving_proto_field_name=True)


@pytest.mark.parametrize(
    ("stated", "kind", "space"),
    [
        (
            {"type": "Float", "min": "1e-4", "max": "0.1", "log": True},
            "DOUBLE",
            {"min": "0.0001", "max": "0.1", "distribution": "LOG_UNIFORM"},
        ),
        (
            {"type": "Float", "min": "-1", "max": 1},
            "DOUBLE",
            {"min": "-1.0", "max": "1.0", "distribution": "UNIFORM"},
        ),
        (
            {"type": "Int", "min": 16, "max": 128},
            "INT",
            {"min": "16", "max": "128", "distribution": "UNIFORM"},
        ),
        (
            {"type": "Int", "min": 1, "max": 1024, "log": True},
            "INT",
            {"min": "1", "max": "1024", "distribution": "LOG_UNIFORM"},
        ),
        (
            {"type": "Int", "min": 16, "max": 255, "step": 16},
            "INT",
            {"min": "16", "max": "240", "step": "16", "distribution": "UNIFORM"},
        ),
        (
            {"type": "Float", "min": "0", "max": "0.5", "step": "0.1"},
            "DOUBLE",
            {"min": "0.0", "max": "0.5", "step": "0.1", "distribution": "UNIFORM"},
        ),
        (
            {"type": "Float", "min": "0.05", "max": "0.95", "step": "0.3"},
            "DISCRETE",
            {"list": ["0.05", "0.35", "0.65", "0.95"]},
        ),
        ({"type": "Int", "min": 3, "max": 8, "step": 2}, "DISCRETE", {"list": ["3", "5", "7"]}),
        ({"type": "Int", "min": 3, "max": 4, "step": 2}, "DISCRETE", {"list": ["3"]}),
        (
            {"type": "Categorical", "values": ["relu", "1", "true"]},
            "CATEGORICAL",
            {"list": ["relu", "1", "true"]},
        ),
    ],
    ids=range(10),
)
def test_a_parameter_keeps_its_values(stated: Raw, kind: str, space: Raw) -> None:
    search = a_search(searchSpace=[{"name": "x", **stated}])
    (parameter,) = experiment_of(search, TPE).spec.parameter_specs.parameters
    assert as_dict(parameter) == {"name": "x", "parameter_type": kind, "feasible_space": space}


@pytest.mark.parametrize(("goal", "word"), [("Maximize", "MAXIMIZE"), ("Minimize", "MINIMIZE")])
def test_an_experiment_has_objective_algorithm_and_bounds(goal: str, word: str) -> None:
    search = a_search(objective={"metric": "loss/val", "goal": goal}, trials=9, parallelism=3)
    experiment = as_dict(experiment_of(search, TPE))
    assert experiment["name"] == "digits"
    spec = experiment["spec"]
    assert spec["objective"] == {"type": word, "objective_metric_name": "loss/val"}
    assert spec["algorithm"] == {
        "algorithm_name": "tpe",
        "algorithm_settings": [{"name": "random_state", "value": "7"}],
    }
    assert (spec["parallel_trial_count"], spec["max_trial_count"]) == (3, 9)


def suggested(*widths: str) -> list[Raw]:
    return [
        {"trial": at, "parameters": {"lr": "0.010", "width": width}}
        for at, width in enumerate(widths)
    ]


RESULTS: list[Raw] = [
    {"trial": 0, "epoch": 9, "value": "0.75"},
    {"trial": 1, "epoch": 9, "reason": "TrialFailed"},
    {"trial": 2, "epoch": 9, "reason": "MetricMissing"},
    {"trial": 3, "epoch": 9, "reason": "MetricNotANumber"},
    {"trial": 5, "epoch": 9, "reason": "SuggestionRefused"},
]


def test_trials_are_told_with_what_became_of_them() -> None:
    search = a_search(
        suggestions=suggested("16", "17", "18", "19", "20", "4096"),
        status={"results": RESULTS},
        parallelism=3,
    )
    request = as_dict(request_of(search, TPE, search.trials))
    told = {one["name"]: one for one in request["trials"]}
    assert list(told) == ["digits-t0000", "digits-t0001", "digits-t0004"]
    assert told["digits-t0000"]["status"] == {
        "condition": "SUCCEEDED",
        "observation": {"metrics": [{"name": "accuracy", "value": "0.75"}]},
    }
    assert told["digits-t0001"]["status"] == {"condition": "FAILED"}
    assert told["digits-t0004"]["status"] == {"condition": "RUNNING"}
    assert told["digits-t0000"]["spec"]["parameter_assignments"]["assignments"] == [
        {"name": "lr", "value": "0.010"},  # to the letter
        {"name": "width", "value": "16"},
    ]
    assert request["current_request_number"] == 2, "one of three runs"
    assert request["total_request_number"] == 8


def test_the_last_epoch_counts_of_a_trial_with_several() -> None:
    stated = [{"trial": 0, "parameters": {"lr": "0.01", "width": "16"}, "epochs": [3, 9]}]
    first = {"trial": 0, "epoch": 3, "value": "0.5"}
    search = a_search(suggestions=stated, status={"results": [first]})
    assert [one.value for one in search.trials] == [None]
    search = a_search(
        suggestions=stated, status={"results": [first, {"trial": 0, "epoch": 9, "value": "0.25"}]}
    )
    assert [one.value for one in search.trials] == [0.25]


def test_forged_results_are_told_of_no_one() -> None:
    forged = [
        {"trial": 0, "epoch": 5, "value": "99"},
        {"trial": 7, "epoch": 9, "value": "99"},
    ]
    search = a_search(suggestions=suggested("16"), status={"results": forged})
    assert [(one.trial, one.value) for one in search.trials] == [(0, None)]
    assert search.running == 1


def test_another_algorithm_is_no_search_for_a_service() -> None:
    with pytest.raises(WireError, match="Random chooses parameters itself"):
        a_search(algorithm={"ref": "Random", "maxEpochs": 9})
