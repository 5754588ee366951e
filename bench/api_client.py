# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The API server, asked as a user: bodies go out as they are written, wild numbers included.

A client library would refuse to write half of them, and kubectl checks objects before it sends
them.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
JSON: Final = "application/json"
TIMEOUT_S: Final = 20.0


class NotAnswered(RuntimeError):
    """The API server is away, or refused what must be there; the text holds the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server said."""

    status: int
    """HTTP status."""
    text: str
    """The body."""

    @property
    def accepted(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """What a refusal says to people."""
        try:
            return str(json.loads(self.text).get("message", ""))
        except (ValueError, AttributeError):
            return self.text


class ApiClient:
    """Requests of the cluster's administrator, or in the name of another user."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read a kubeconfig with one cluster and a token, as the local cluster writes it."""
        body = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster = body["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._server = str(cluster["server"])
        self._token = str(body["users"][0]["user"]["token"])
        self._tls = ssl.create_default_context(cadata=authority)

    def ask(
        self, method: str, path: str, body: str = "", *, user: str = "", content: str = JSON
    ) -> Answer:
        """One request.

        Args:
            method: HTTP method.
            path: Path and query.
            body: JSON as it is sent.
            user: In whose name; empty = the administrator's.
            content: Media type of the body.

        Raises:
            NotAnswered: there was no answer.
        """
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": content,
            "Accept": JSON,
        } | ({"Impersonate-User": user} if user else {})
        request = urllib.request.Request(
            self._server + path, data=body.encode() or None, headers=headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as reply:
                return Answer(status=reply.status, text=reply.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(status=error.code, text=error.read().decode(errors="replace"))
        except OSError as error:
            raise NotAnswered(f"{method} {path}: {error}") from error

    def serves_pods(self) -> bool:
        """Whether the API server answers at its Service's address, where pods ask it.

        Raises:
            NotAnswered: it does not answer at its own address.
        """
        service = self.get("/api/v1/namespaces/default/services/kubernetes") or {}
        url = f"https://{service.get('spec', {}).get('clusterIP')}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=1, context=self._tls) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def get(self, path: str) -> Json | None:
        """One object, or None.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        answer = self.ask("GET", path)
        if answer.status == 404:
            return None
        if not answer.accepted:
            raise NotAnswered(f"GET {path}: {answer.status} {answer.message}")
        found: Json = json.loads(answer.text)
        return found

    def list(self, path: str) -> list[Json]:
        """The objects of a collection.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        items: list[Json] = (self.get(path) or {}).get("items", [])
        return items

    def create(self, path: str, body: Mapping[str, object]) -> None:
        """Create an object that must be accepted; one of that name will do.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        answer = self.ask("POST", path, json.dumps(body))
        if not answer.accepted and answer.status != 409:
            raise NotAnswered(f"POST {path}: {answer.status} {answer.message}")

    def patch(self, path: str, body: str) -> None:
        """Merge-patch an object; one that is gone is left gone.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        answer = self.ask("PATCH", path, body, content="application/merge-patch+json")
        if not answer.accepted and answer.status != 404:
            raise NotAnswered(f"PATCH {path}: {answer.status} {answer.message}")

    def delete(self, path: str, *, at_once: bool = False) -> None:
        """Delete an object or a collection; what is gone already is fine.

        Args:
            path: Of the object or the collection.
            at_once: Without grace, as ``kubectl delete --force`` does.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        options = json.dumps({"gracePeriodSeconds": 0}) if at_once else ""
        answer = self.ask("DELETE", path, options)
        if not answer.accepted and answer.status != 404:
            raise NotAnswered(f"DELETE {path}: {answer.status} {answer.message}")
