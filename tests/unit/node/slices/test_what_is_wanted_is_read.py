# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from ullage.api.nodespec import MAX_SLICES
from ullage.api.readers import WireError
from ullage.api.slices import MAX_EPOCH
from ullage_node.slices.desired import PROBLEMS_MOST, read_gpu_node


def entry(**change: object) -> dict[str, Any]:
    """One slice of a spec."""
    return {
        "podUID": "uid-1",
        "container": "main",
        "index": 0,
        "podNamespace": "team",
        "podName": "pod-1",
        "gpu": "gpu-0",
        "percent": 40,
        "memoryMiB": 1000,
        "epoch": 1,
        **change,
    }


def node(*slices: object) -> dict[str, Any]:
    """A GPUNode with these slices."""
    return {
        "metadata": {"uid": "uid-node", "generation": 3},
        "spec": {"epoch": 1, "slices": slices},
    }


def test_a_slice_that_stands_twice_counts_once_and_is_named() -> None:
    raw = node(entry(), entry(percent=90), entry(index=1))
    raw["spec"]["slices"] = list(raw["spec"]["slices"])
    spec = read_gpu_node(raw)
    assert [(part.key.index, part.percent) for part in spec.slices] == [(0, 40), (1, 40)]
    assert spec.problems == ("spec.slices[1].podUID: uid-1_main stands there already",)


def test_a_slice_with_a_fault_is_told_apart_and_harms_no_other() -> None:
    raw = node()
    raw["spec"]["slices"] = [
        entry(percent=0),
        entry(podUID="uid-2"),
        "nonsense",
        entry(podUID="../x"),
    ]
    spec = read_gpu_node(raw)
    assert [part.key.pod_uid for part in spec.slices] == ["uid-2"]
    ((faulty, why),) = spec.faulty
    assert faulty.key.pod_uid == "uid-1"
    assert why.startswith("percent: 0 ")
    assert spec.problems == (
        "spec.slices[2].expected an object, got str",
        "spec.slices[3].podUID: '../x' cannot name a directory",
    )


def test_a_slice_cannot_raise_the_epoch_of_the_node() -> None:
    raw = node()
    raw["spec"]["slices"] = [entry(epoch=2**52), entry(podUID="uid-2")]
    spec = read_gpu_node(raw)
    assert [part.key.pod_uid for part in spec.slices] == ["uid-2"]
    assert spec.faulty[0][1] == f"epoch: {2**52} is above that of the spec, 1"


def test_thousands_of_faults_are_named_in_few_words() -> None:
    raw = node()
    raw["spec"]["slices"] = [entry(podUID=f"uid-{n}") for n in range(5000)]
    spec = read_gpu_node(raw)
    assert len(spec.slices) == MAX_SLICES
    assert len(spec.problems) == PROBLEMS_MOST + 1


def test_a_node_that_no_operator_has_written_yet_wants_nothing() -> None:
    spec = read_gpu_node({"metadata": {"uid": "uid-node"}, "spec": {}})
    assert (spec.epoch, spec.generation, spec.slices, spec.problems) == (0, 0, (), ())
    assert not spec.retire


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec": {"epoch": -1}}, "spec.epoch: -1 must be from 0"),
        ({"spec": {"epoch": MAX_EPOCH + 1}}, "spec.epoch"),
        ({"metadata": {"uid": "u", "generation": -1}}, "metadata.generation: -1 is below 0"),
    ],
)
def test_numbers_that_only_rise_are_not_below_their_first(
    change: dict[str, Any], says: str
) -> None:
    assert read_gpu_node(node() | {"spec": {"epoch": MAX_EPOCH}}).epoch == MAX_EPOCH
    with pytest.raises(WireError, match=says):
        read_gpu_node(node() | change)
