# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""EC2: interruption notices and rebalance recommendations of Spot instances, by IMDSv2.

Published behaviour: a session token is created by PUT with a lifetime (at most six hours) and sent
in each request; an unknown token is answered 401; ``spot/instance-action`` and
``events/recommendations/rebalance`` are 404 until there is a notice. Sources: EC2 User Guide, "Spot
Instance interruption notices", "EC2 instance rebalance recommendations", "Use the Instance Metadata
Service".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import orjson

from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.readers import JsonObject, WireError, text
from ullage_node.notices.endpoint import (
    AnswerUnreadable,
    Endpoint,
    EndpointAway,
    ok_or_away,
    rfc3339_moment,
)

TOKEN: Final = "/latest/api/token"
ACTION: Final = "/latest/meta-data/spot/instance-action"
REBALANCE: Final = "/latest/meta-data/events/recommendations/rebalance"
LIFE_HEADER: Final = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER: Final = "X-aws-ec2-metadata-token"
TOKEN_SECONDS: Final = 21_600
ENDS: Final = ("terminate", "stop", "hibernate")
"""Actions of an interruption; each of them ends the processes of the machine."""
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404


class EC2:
    """Client of EC2's instance metadata service."""

    name = "EC2"
    base = "http://169.254.169.254"

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._token = ""
        self._renew_at = 0.0

    async def ask(self, endpoint: Endpoint, known: Interruption | None) -> Interruption | None:
        """The notice in force; an interruption takes precedence over a recommendation."""
        action = await self._read(endpoint, ACTION)
        if action is not None:
            return Interruption(
                kind=InterruptionKind.TERMINATE, deadline_s=_end_of(action), source=self.name
            )
        advice = await self._read(endpoint, REBALANCE)
        if advice is None:
            return None
        _moment_of(advice, "noticeTime", REBALANCE)
        return Interruption(kind=InterruptionKind.REBALANCE, source=self.name)

    async def _read(self, endpoint: Endpoint, path: str) -> JsonObject | None:
        """A document, or ``None`` if missing; a refused token is renewed once."""
        for _ in range(2):
            headers = {TOKEN_HEADER: await self._session_token(endpoint)}
            answer = await endpoint.get(path, headers)
            if answer.status != _UNAUTHORIZED:
                break
            self._token = ""
        if answer.status == _NOT_FOUND:
            return None
        body = ok_or_away(answer, path)
        try:
            document = orjson.loads(body)
        except ValueError as error:
            raise AnswerUnreadable(f"{path} is no JSON") from error
        if not isinstance(document, dict):
            raise AnswerUnreadable(f"{path} is no object")
        return document

    async def _session_token(self, endpoint: Endpoint) -> str:
        now = self._monotonic()
        if not self._token or now >= self._renew_at:
            answer = await endpoint.put(TOKEN, {LIFE_HEADER: str(TOKEN_SECONDS)})
            token = ok_or_away(answer, TOKEN)
            if not (token.isascii() and token.isprintable() and token):
                raise EndpointAway(f"{TOKEN} answers with no token")
            self._token, self._renew_at = token, now + TOKEN_SECONDS / 2
        return self._token


def _end_of(action: JsonObject) -> float:
    try:
        word = text(action, "action")
    except WireError as error:
        raise AnswerUnreadable(f"{ACTION}: {error}") from error
    if word not in ENDS:
        raise AnswerUnreadable(f"{ACTION}: the action is none of {', '.join(ENDS)}")
    return _moment_of(action, "time", ACTION)


def _moment_of(document: JsonObject, field: str, path: str) -> float:
    try:
        return rfc3339_moment(text(document, field))
    except (WireError, ValueError) as error:
        raise AnswerUnreadable(f"{path}: {field} is no time") from error
