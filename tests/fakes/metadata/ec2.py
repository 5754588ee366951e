# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The instance metadata service of EC2, version 2 required.

After the EC2 User Guide: PUT ``/latest/api/token`` with a life of 1 to 21,600 seconds, else 400; a
PUT that came through a proxy (``X-Forwarded-For``) is 403; other methods there are 405; a request
without a token, or with one that is unknown or over, is 401; what is not there is 404.
``spot/instance-action`` is ``{"action", "time"}`` from the notice on, two minutes before the end;
``events/recommendations/rebalance`` is ``{"noticeTime"}``. The public mock of the service
(amazon-ec2-metadata-mock) answers alike; this one is written from the documents.
"""

from __future__ import annotations

import json
import secrets

from aiohttp import web

from fakes.metadata.server import MetadataServer

LONGEST_LIFE_SECONDS = 21_600


class FakeEC2(MetadataServer):
    """Says what the test wants said."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__(host)
        self.machines: frozenset[str] | None = None
        """Addresses of those whom the notice is about; every machine has a service of its own."""
        self.listeners: set[str] = set()
        """Addresses of those who asked."""
        self.tokens: set[str] = set()
        """Tokens that are good; emptied, all of them are over."""
        self.action: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None

    def interrupt(self, at: str, action: str = "terminate") -> None:
        """Give notice."""
        self.action = {"action": action, "time": at}

    def recommend(self, at: str) -> None:
        """Recommend to leave."""
        self.rebalance = {"noticeTime": at}

    def withdraw(self) -> None:
        """Take everything back."""
        self.action = self.rebalance = None

    def routes(self) -> list[web.RouteDef]:
        meta = "/latest/meta-data"
        return [
            web.route("*", "/latest/api/token", self._token),
            web.get(f"{meta}/spot/instance-action", self._instance_action),
            web.get(f"{meta}/events/recommendations/rebalance", self._recommendation),
        ]

    async def _token(self, request: web.Request) -> web.Response:
        if request.method != "PUT":
            return web.Response(status=405)
        if "X-Forwarded-For" in request.headers:
            return web.Response(status=403)
        life = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if not life.isdigit() or not 1 <= int(life) <= LONGEST_LIFE_SECONDS:
            return web.Response(status=400)
        token = secrets.token_urlsafe(40) + "=="
        self.tokens.add(token)
        return web.Response(text=token, headers={"X-aws-ec2-metadata-token-ttl-seconds": life})

    async def _instance_action(self, request: web.Request) -> web.Response:
        return self._document(request, self.action)

    async def _recommendation(self, request: web.Request) -> web.Response:
        return self._document(request, self.rebalance)

    def _document(self, request: web.Request, content: dict[str, str] | None) -> web.Response:
        if request.headers.get("X-aws-ec2-metadata-token") not in self.tokens:
            return web.Response(status=401)
        self.listeners.add(request.remote or "")
        if self.machines is not None and request.remote not in self.machines:
            content = None
        if self.garbage is not None:
            return web.Response(text=self.garbage)
        if content is None:
            return web.Response(status=404, text="<html>404 - Not Found</html>")
        return web.Response(text=json.dumps(content), content_type="application/json")
