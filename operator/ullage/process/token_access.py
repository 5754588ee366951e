# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Access to paths: bearer tokens by TokenReview, rights by SubjectAccessReview.

The same check as controller-runtime's ``WithAuthenticationAndAuthorization`` for the metrics of
Kueue: verb ``get`` on the non-resource URL. The API server decides; a bounded number of answers is
cached briefly, under the token's hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ullage.process.times import ACCESS_ALLOWED_S, ACCESS_DENIED_S, ACCESS_REVIEW_S

log = structlog.get_logger("ullage.access")

TOKEN_REVIEWS: Final = "tokenreviews"
SUBJECT_ACCESS_REVIEWS: Final = "subjectaccessreviews"
Review = Callable[[str, Mapping[str, object]], Awaitable[Mapping[str, object]]]
"""Sends ``spec`` as a new review of this plural; the API server's answer. It may raise anything."""

LONGEST_TOKEN: Final = 8 * 1024
"""Maximum characters; a service account's token has one or two thousand."""
MOST_ANSWERS: Final = 256
"""Cached answers, of allowed and of refused clients each."""
AT_ONCE: Final = 4
MOST_WAITING: Final = 16
"""Concurrent reviews; more are refused at once: unknown tokens must not load the API server."""


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """An HTTP status, and the text of the answer unless it is 200."""

    status: int
    text: str = ""


ALLOWED: Final = AccessVerdict(200)
UNKNOWN: Final = AccessVerdict(401, "send a bearer token that the API server knows\n")
UNANSWERED: Final = AccessVerdict(503, "the API server does not say who you are; try again\n")
BUSY: Final = AccessVerdict(503, "too many unknown callers; try again\n")


_Key = tuple[bytes, str]
"""Hash of a token, and a path."""


class Unreadable(Exception):
    """The API server's answer has an invalid shape."""


class TokenAccess:
    """Authenticates and authorises clients; one per process."""

    def __init__(self, review: Review, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` is monotonic, in seconds."""
        self._review = review
        self._clock = clock
        self._answers: dict[bool, dict[_Key, tuple[float, AccessVerdict]]] = {True: {}, False: {}}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def judge(self, authorization: str, path: str) -> AccessVerdict:
        """Authorise a client for a path.

        Args:
            authorization: The untrusted header; "" = none.
            path: Path of the request, as in roles.
        """
        token = _token(authorization)
        if not token:
            return UNKNOWN
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), path
        for kept in self._answers.values():
            until, verdict = kept.get(key, (0.0, UNKNOWN))
            if self._clock() < until:
                return verdict
        if self._waiting >= MOST_WAITING:
            return BUSY
        self._waiting += 1
        try:
            async with asyncio.timeout(ACCESS_REVIEW_S), self._gate:
                verdict = await self._asked(token, path)
        except Exception as error:  # whatever a client of the API server raises
            log.warning("a caller could not be judged", path=path, error=repr(error))
            return UNANSWERED
        finally:
            self._waiting -= 1
        self._keep(key, verdict)
        return verdict

    def _keep(self, key: _Key, verdict: AccessVerdict) -> None:
        """Cache an answer; refusals, which any client can cause, evict only refusals."""
        allowed = verdict is ALLOWED
        self._answers[not allowed].pop(key, None)
        kept = self._answers[allowed]
        kept.pop(key, None)
        while len(kept) >= MOST_ANSWERS:
            del kept[next(iter(kept))]
        kept[key] = self._clock() + (ACCESS_ALLOWED_S if allowed else ACCESS_DENIED_S), verdict

    async def _asked(self, token: str, path: str) -> AccessVerdict:
        status = _status(await self._review(TOKEN_REVIEWS, {"token": token}))
        if status.get("authenticated") is not True:
            return UNKNOWN
        user = status.get("user")
        if not isinstance(user, Mapping) or not isinstance(user.get("username"), str):
            raise Unreadable("a TokenReview that names no user")
        about = {
            name: user[key]
            for key, name in (
                ("username", "user"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra"),
            )
            if user.get(key)
        }  # fmt: skip
        wish = {"path": path, "verb": "get"}
        status = _status(
            await self._review(SUBJECT_ACCESS_REVIEWS, {**about, "nonResourceAttributes": wish})
        )
        if status.get("allowed") is True and status.get("denied") is not True:
            return ALLOWED
        return AccessVerdict(
            403, f"{user['username']} may not get {path}: bind the role metrics-reader\n"
        )


def _token(authorization: str) -> str:
    """The token of a header; empty without one."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or len(token) > LONGEST_TOKEN:
        return ""
    # the characters of RFC 6750; anything else is no token of an API server
    return token if token.isascii() and token.isprintable() and " " not in token else ""


def _status(answer: object) -> Mapping[str, object]:
    status = answer.get("status") if isinstance(answer, Mapping) else None
    if not isinstance(status, Mapping):
        raise Unreadable("a review without status")
    return status
