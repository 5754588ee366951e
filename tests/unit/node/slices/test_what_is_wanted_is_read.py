# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from ullage_node.slices.desired import read_gpu_node


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
