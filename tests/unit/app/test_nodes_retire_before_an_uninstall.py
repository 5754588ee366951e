# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Retiring asks every node, waits for their answers, and names those that gave none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from structlog.testing import capture_logs

from ullage.api.labels import GATE
from ullage.app.uninstall import gated_pods, retire, set_retired
from ullage.ports import JsonObject, JsonPatch, Kind, NotFound, Page, Selector


class Nodes:
    """GPUNodes in memory; an agent answers when its node is asked, unless it is deaf."""

    def __init__(self, *names: str, deaf: Sequence[str] = (), gone: Sequence[str] = ()) -> None:
        self.retire = dict.fromkeys(names, False)
        self.deaf = deaf
        self.gone = gone

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        yield Page(items=[self._node(name) for name in self.retire], resource_version="1")

    async def json_patch(
        self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> JsonObject:
        if name in self.gone:
            del self.retire[name]
            raise NotFound(404, f"{name} is gone")
        assert patch[0]["path"] == "/spec/retire"
        self.retire[name] = bool(patch[0]["value"])
        return {}

    def _node(self, name: str) -> JsonObject:
        answered = self.retire[name] and name not in self.deaf
        condition = {"type": "Retired", "status": "True" if answered else "False"}
        return {
            "metadata": {"name": name},
            "spec": {"retire": self.retire[name]},
            "status": {"conditions": [condition]},
        }


class Waiting(Nodes):
    """Pods beside the nodes: some of ours wait behind a gate of ours."""

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        if kind.kind != "Pod":
            async for page in super().list_paged(kind, selector, limit=limit):
                yield page
            return
        gates = {"waits": [{"name": GATE}], "runs": [], "theirs": [{"name": "example.org/quota"}]}
        pods = [
            {"metadata": {"namespace": "a", "name": name}, "spec": {"schedulingGates": held}}
            for name, held in gates.items()
        ]
        yield Page(items=pods, resource_version="1")


async def test_pods_that_wait_are_counted_and_left_gated() -> None:
    nodes = Waiting("a")
    assert await gated_pods(nodes) == ["a/waits"]  # type: ignore[arg-type]
    with capture_logs() as logs:
        assert await retire(nodes, timeout_s=5) == []  # type: ignore[arg-type]
    (told,) = [one for one in logs if "stay gated" in one["event"]]
    assert (told["count"], told["pods"]) == (1, ["a/waits"])


async def test_every_node_answers() -> None:
    nodes = Nodes("a", "b")
    assert await retire(nodes, timeout_s=5) == []  # type: ignore[arg-type]
    assert nodes.retire == {"a": True, "b": True}


async def test_a_silent_node_is_named() -> None:
    nodes = Nodes("a", "b", deaf=["b"])
    assert await retire(nodes, timeout_s=0) == ["b"]  # type: ignore[arg-type]


async def test_a_node_that_vanishes_meanwhile_is_no_error() -> None:
    nodes = Nodes("a", "b", gone=["a"])
    assert await retire(nodes, timeout_s=5) == []  # type: ignore[arg-type]


async def test_serving_again_touches_retired_nodes_only() -> None:
    nodes = Nodes("a", "b")
    nodes.retire["a"] = True
    assert await set_retired(nodes, retired=False) == ["a"]  # type: ignore[arg-type]
