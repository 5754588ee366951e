# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads objects over one connection: kubectl takes a tenth of a second of CPU time for each look.

Names of kinds are those of kubectl: plural or singular, with or without their group.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import yaml

from demo.progress import CommandFailed

Json = dict[str, Any]
DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TIMEOUT_S: Final = 30.0
BUSY: Final = 429
TRIES: Final = 10
"""Answers of a server that is not ready for a kind, as after its CRD was applied; as kubectl."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the objects of a kind are."""

    root: str
    """Path of the group and its version."""
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As it stands in an object."""
        return self.root.removeprefix("/apis/").removeprefix("/api/")

    def path(self, namespace: str, name: str = "") -> str:
        """Path of the objects of a namespace (empty = of all), or of one of them."""
        scope = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{self.root}{scope}/{self.plural}" + (f"/{name}" if name else "")


@dataclass(slots=True)
class ApiReader:
    """Reads as the user of a kubeconfig with a token, one question at a time."""

    kubeconfig: Path
    _resources: dict[str, Resource] = field(default_factory=dict)
    _connection: http.client.HTTPSConnection | None = None
    _token: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, kind: str, name: str, namespace: str) -> Json | None:
        """One object; ``None`` where there is none of this name.

        Raises:
            CommandFailed: the server has no such kind, refuses or does not answer.
        """
        resource = self._resource(kind)
        path = resource.path(namespace or "default", name)
        status, body = self._ask(path)
        if status == http.client.NOT_FOUND and body.get("details", {}).get("name") == name:
            return None
        return self._checked(path, status, body)

    def list(self, kind: str, namespace: str, **selectors: str) -> list[Json]:
        """All objects of a kind in a namespace, empty = in all of them.

        Args:
            kind: Plural or singular, with or without its group.
            namespace: Where to look.
            selectors: ``labelSelector`` and ``fieldSelector``; an empty one selects all.

        Raises:
            CommandFailed: as for ``get``.
        """
        resource = self._resource(kind)
        chosen = urlencode({key: value for key, value in selectors.items() if value})
        path = resource.path(namespace) + (f"?{chosen}" if chosen else "")
        body = self._checked(path, *self._ask(path))
        told = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [told | item for item in body["items"]]

    def _resource(self, kind: str) -> Resource:
        if kind not in self._resources:
            self._resources = dict(self._discovered())
        if kind not in self._resources:
            raise CommandFailed(f"the server has no resource {kind!r}")
        return self._resources[kind]

    def _discovered(self) -> Iterator[tuple[str, Resource]]:
        """Kinds by name; where several groups have one, the first of the server's order counts."""
        seen: set[str] = set()
        for root in ("/api", "/apis"):
            groups = self._checked(root, *self._ask(root, DISCOVERY))["items"]
            for group in groups:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    at = "/".join(filter(None, (root, name, version["version"])))
                    for one in version["resources"]:
                        kind = one["responseKind"]["kind"]
                        found = Resource(at, one["resource"], kind, one["scope"] == "Namespaced")
                        for word in {one["resource"], one["singularResource"]}:
                            for full in filter(None, (word, f"{word}.{name}" if name else "")):
                                if full not in seen:
                                    seen.add(full)
                                    yield full, found

    def _checked(self, path: str, status: int, body: Json) -> Json:
        if status != http.client.OK:
            self._resources.clear()  # the kind may be gone, or served by another version
            raise CommandFailed(f"GET {path}: {status} {body.get('message', '')}")
        return body

    def close(self) -> None:
        """Close the connection; the next question opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, path: str, accept: str = "application/json") -> tuple[int, Json]:
        """Ask, and again while the server is not ready."""
        with self._lock:
            for _ in range(TRIES):
                status, body = self._once(path, accept)
                if status != BUSY:
                    break
                time.sleep(1.0)
            return status, body

    def _once(self, path: str, accept: str) -> tuple[int, Json]:
        """Ask, and once more where the server closed the connection that was kept."""
        while True:
            is_kept = self._connection is not None
            try:
                return self._answer(path, accept)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not is_kept:
                    raise CommandFailed(f"GET {path}: {error!r}") from error

    def _answer(self, path: str, accept: str) -> tuple[int, Json]:
        if self._connection is None:
            self._connection = self._opened()
        headers = {"Accept": accept, "Authorization": f"Bearer {self._token}"}
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        text = response.read()
        is_json = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(text) if is_json else {"message": text.decode()}

    def _opened(self) -> http.client.HTTPSConnection:
        config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        server, self._token = urlsplit(cluster["server"]), str(user["token"])
        context = ssl.create_default_context(cadata=authority)
        return http.client.HTTPSConnection(
            server.hostname or "", server.port, timeout=TIMEOUT_S, context=context
        )
