# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Caches the last apply of each object: an equal one is skipped while the object is unchanged.

Also follows the resource versions of our own status writes, so that two consecutive statuses need
not wait for the watch. Bounded by bytes; an evicted entry costs one write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import orjson

from ullage.cluster.projection.pod_template import Seen
from ullage.cluster.values.bounded import Memo
from ullage.kube.times import APPLY_UNSEEN_S
from ullage.ports import JsonObject

_CHAIN: Final = 16
"""Own versions stored per object."""

Key = TypeVar("Key", bound=Hashable)


def digest(body: JsonObject) -> str:
    """Content of an apply body, without the version it was based on."""
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and "resourceVersion" in metadata:
        kept = {key: value for key, value in metadata.items() if key != "resourceVersion"}
        body = {**body, "metadata": kept}
    return hashlib.blake2b(
        orjson.dumps(body, option=orjson.OPT_SORT_KEYS), digest_size=16
    ).hexdigest()


def _answer_meta(answer: JsonObject) -> tuple[str, int, str]:
    metadata = answer.get("metadata")
    if not isinstance(metadata, dict):
        return "", 0, ""
    generation = metadata.get("generation")
    return (
        str(metadata.get("uid") or ""),
        generation if isinstance(generation, int) else 0,
        str(metadata.get("resourceVersion") or ""),
    )


@dataclass(slots=True, kw_only=True)
class _Applied:
    digest: str
    uid: str
    generation: int
    at: float


class ApplyGate(Generic[Key]):
    """Detects applies of a spec that would change nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self._kept: Memo[Key, _Applied] = Memo(limit_bytes)

    def unchanged(self, key: Key, content: str, seen: Seen | None, now: float) -> bool:
        """True if the same content was applied and the object has not changed since.

        A newer generation than our apply's means a foreign change. Without a generation in the
        watch (yet), the apply is trusted only for a while.
        """
        last = self._kept.get(key)
        if last is None or last.digest != content:
            return False
        if seen is None or not seen.generation or not last.generation:
            return now - last.at < APPLY_UNSEEN_S
        return seen.uid == last.uid and seen.generation <= last.generation

    def applied(self, key: Key, content: str, answer: JsonObject, now: float) -> None:
        """Record a successful apply and its answer."""
        uid, generation, _ = _answer_meta(answer)
        self._kept.put(key, _Applied(digest=content, uid=uid, generation=generation, at=now))

    def forget(self, key: Key) -> None:
        """Forget the last apply: it may no longer be in force."""
        self._kept.forget(key)


@dataclass(slots=True, kw_only=True)
class _Chain:
    digest: str
    latest: str
    ours: list[str] = field(default_factory=list)


class StatusGate:
    """Detects status applies that would change nothing, and tracks the version to base one on."""

    def __init__(self, limit_bytes: int) -> None:
        self._kept: Memo[str, _Chain] = Memo(limit_bytes)

    def base(self, uid: str, seen_version: str) -> str:
        """The version to base a status on: our own latest, if all changes since were ours."""
        chain = self._kept.get(uid)
        if chain is not None and seen_version in chain.ours:
            return chain.latest
        return seen_version

    def unchanged(self, uid: str, seen_version: str, content: str) -> bool:
        """True if this status was written and the object has not changed since."""
        chain = self._kept.get(uid)
        if chain is None or chain.digest != content:
            return False
        return seen_version == chain.latest or seen_version in chain.ours

    def applied(self, uid: str, based_on: str, content: str, answer: JsonObject) -> None:
        """Record a status written on top of a version, and the answer."""
        _, _, version = _answer_meta(answer)
        chain = self._kept.get(uid)
        ours = list(chain.ours) if chain is not None and chain.latest == based_on else []
        self._kept.put(
            uid, _Chain(digest=content, latest=version, ours=[*ours, based_on][-_CHAIN:])
        )

    def forget(self, uid: str) -> None:
        """Forget the last write: it may no longer be in force."""
        self._kept.forget(uid)
