# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The list of a Node's taints has many writers: ours is set and lifted, the others stay."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.cluster.projection.notice import TAINT_KEY
from ullage.scheduling.lifecycle.taints import taint_patch

OURS = {"key": TAINT_KEY, "value": "Terminate", "effect": "NoSchedule"}
THEIRS = {"key": "gpu", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}
UNCHANGED = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def a_node(*taints: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"podCIDR": "10.0.0.0/24"}
    if taints:
        spec["taints"] = list(taints)
    return {"metadata": {"name": "node-1", "uid": "u", "resourceVersion": "7"}, "spec": spec}


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ([], "Terminate", [OURS]),
        ([THEIRS], "Terminate", [THEIRS, OURS]),
        ([OURS | {"value": "Other"}, THEIRS], "Terminate", [THEIRS, OURS]),
        ([OURS, THEIRS], "", [THEIRS]),
        ([OURS], "", []),
    ],
)
def test_the_patch_holds_for_the_version_that_was_read(
    before: list[dict[str, Any]], value: str, after: list[dict[str, Any]]
) -> None:
    assert taint_patch(a_node(*before), value) == [
        UNCHANGED,
        {"op": "add", "path": "/spec/taints", "value": after},
    ]


@pytest.mark.parametrize(("before", "value"), [([OURS, THEIRS], "Terminate"), ([THEIRS], "")])
def test_a_node_that_is_as_it_should_be_is_not_written(
    before: list[dict[str, Any]], value: str
) -> None:
    # ours may stand anywhere in the list: its place is no difference
    assert taint_patch(a_node(*before), value) is None


def test_a_node_without_a_spec_gets_one() -> None:
    node = {"metadata": {"resourceVersion": "7"}}
    assert taint_patch(node, "Terminate") == [
        UNCHANGED,
        {"op": "add", "path": "/spec", "value": {"taints": [OURS]}},
    ]
