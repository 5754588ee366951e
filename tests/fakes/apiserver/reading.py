# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lists in pages, at one version each; and what discovery answers."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from typing import Any

import orjson

from fakes.apiserver.errors import Refusal
from fakes.apiserver.faults import Faults
from fakes.apiserver.resources import Resource
from fakes.apiserver.selectors import selection
from fakes.apiserver.store import Key, Store, Stored

KEPT_LISTS = 1_000


class Lists:
    """Answers to LIST; continued ones stay at the version they began with."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._tokens = itertools.count(1)
        self._open: dict[str, tuple[int, list[Stored]]] = {}

    def answer(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> bytes:
        """One page as JSON."""
        if token := query.get("continue"):
            version, rest = self._continued(token)
        else:
            version, items = self._begin(resource, query)
            selected = selection(query.get("labelSelector", ""), query.get("fieldSelector", ""))
            rest = [
                stored
                for key, stored in items
                if (not namespace or key[0] == namespace) and selected(stored.obj)
            ]
        limit = int(query.get("limit") or 0) or len(rest)
        page, left = rest[:limit], rest[limit:]
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if left:
            meta["continue"] = self._keep(version, left)
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(left)
        head = {
            "kind": f"{resource.kind.kind}List",
            "apiVersion": resource.kind.api_version,
            "metadata": meta,
        }
        body = orjson.dumps(head)[:-1] + b',"items":['
        return body + b",".join(stored.raw for stored in page) + b"]}"

    def _begin(
        self, resource: Resource, query: Mapping[str, str]
    ) -> tuple[int, list[tuple[Key, Stored]]]:
        if query.get("resourceVersionMatch") == "Exact":
            version = int(query["resourceVersion"])
            return version, self._store.at(resource, version)
        return self._store.version, list(self._store.items(resource))

    def _continued(self, token: str) -> tuple[int, list[Stored]]:
        version, rest = self._open.pop(base64.b64decode(token).decode(), (-1, []))
        if self._faults.list_gone > 0:
            self._faults.list_gone -= 1
            version = -1
        if version < self._store.compacted:
            raise Refusal(
                410,
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter",
            )
        return version, rest

    def _keep(self, version: int, left: list[Stored]) -> str:
        name = f"list-{next(self._tokens)}"
        self._open[name] = (version, left)
        while len(self._open) > KEPT_LISTS:
            del self._open[next(iter(self._open))]
        return base64.b64encode(name.encode()).decode()


def discovery(path: str, resources: tuple[Resource, ...]) -> dict[str, Any] | None:
    """Answer to a discovery path, or None if it is none or not served."""
    parts = path.strip("/").split("/")
    if path.rstrip("/") == "/version":
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups: dict[str, str] = {r.kind.group: r.kind.version for r in resources if r.kind.group}
    if parts == ["apis"]:
        listed = [_group(group, version) for group, version in sorted(groups.items())]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
    api_version = "/".join(parts[1:])
    found = [r for r in resources if r.kind.api_version == api_version]
    if len(parts) not in (2, 3) or not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": [entry for r in found for entry in _entries(r)],
    }


def _group(group: str, version: str) -> dict[str, Any]:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    kind = resource.kind
    base = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "shortNames": list(resource.short),
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    }
    subresources = [name for name in ("status", "scale") if getattr(resource, name)]
    return [base] + [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": "Scale" if name == "scale" else kind.kind,
            "verbs": ["get", "patch", "update"],
        }
        for name in subresources
    ]
