# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The last words of a router that does not run reach its service; another pod's do not."""

from __future__ import annotations

from typing import Any

import pytest

from builders_raw import raw_foreign_pod, raw_meta
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.projection.pod import MOST_FAULT, project_router_pod
from ullage.cluster.values import streams

FILES = (
    "Traceback of something\n"
    "ullage-router: --connections 11000 needs 11256 open files, allowed: 4096\n"
)


def pod(
    container: dict[str, Any] | None = None, name: str = "router-1", **metadata: object
) -> dict[str, Any]:
    raw = raw_foreign_pod(name)
    raw["metadata"] = raw_meta(name) | {"labels": {"ullage.dev/router": "serve"}, **metadata}
    if container is not None:
        raw["status"]["containerStatuses"] = [{"name": "router", "ready": False, **container}]
    return raw


def ended(message: object, code: int = 2) -> dict[str, Any]:
    last = {"exitCode": code, "reason": "Error", "message": message}
    return {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": last},
    }


@pytest.mark.parametrize(
    ("container", "fault"),
    [
        (
            ended(FILES),
            "exit 2: ullage-router: --connections 11000 needs 11256 open files, allowed: 4096",
        ),
        (ended(""), "exit 2"),
        (ended("", 0), ""),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "not\n  found"}}},
            "ErrImagePull: not found",
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ""),
        ({"state": {"running": {}}}, ""),
        ({**ended(FILES), "ready": True}, ""),
        ({**ended(FILES), "name": "sidecar"}, ""),
    ],
)
def test_the_last_line_is_told(container: dict[str, Any], fault: str) -> None:
    found = project_router_pod(pod(container))
    assert found is not None
    assert found.fault == fault


def test_long_words_are_cut() -> None:
    found = project_router_pod(pod(ended("x" * 100_000)))
    assert found is not None
    assert len(found.fault) == MOST_FAULT


def test_a_pod_without_the_label_is_no_router() -> None:
    raw = pod(ended(FILES))
    raw["metadata"]["labels"] = {"app": "web"}
    assert project_router_pod(raw) is None


def test_decisions_see_it_while_the_pod_is_there_and_stays() -> None:
    state = ClusterState(effect_of)
    assert not state.upsert(streams.FOREIGN_PODS, pod(), 0.0)
    assert state.freeze(0.0).router_faults == {}
    assert state.upsert(streams.FOREIGN_PODS, pod(ended(FILES)), 0.0), "it wakes a decision"
    assert "open files" in state.freeze(0.0).router_faults["default", "serve"]
    leaving = pod(ended(FILES), deletionTimestamp="2026-01-02T03:04:05Z")
    state.upsert(streams.FOREIGN_PODS, leaving, 0.0)
    state.remove(streams.FOREIGN_PODS, leaving, 0.0)
    assert state.freeze(0.0).router_faults == {}
