# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Knobs that make the fake misbehave as a real API server can."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from fakes.apiserver.errors import Refusal


@dataclass(kw_only=True)
class Failure:
    """Requests to answer with a failure instead of, or after, doing what they ask.

    Empty matchers take everything; ``times`` None never ends; status 0 cuts the connection.
    ``after_write`` carries the request out and hides the success.
    """

    status: int
    times: int | None = 1
    rate: float = 1.0
    verb: str = ""
    plural: str = ""
    subresource: str | None = None
    name: str = ""
    reason: str = ""
    message: str = "injected failure"
    retry_after_s: float = 0.0
    after_write: bool = False

    def takes(self, verb: str, plural: str, subresource: str, name: str) -> bool:
        return (
            self.times != 0
            and self.verb in ("", verb)
            and self.plural in ("", plural)
            and self.subresource in (None, subresource)
            and self.name in ("", name)
        )


@dataclass(kw_only=True)
class Faults:
    """State of all knobs; set the attributes directly or call :meth:`fail`."""

    slow_first_byte_s: float = 0.0
    """Every answer waits this long before its first byte."""
    gone_storm: int = 0
    """This many watches end at once with 410."""
    gone_over_http: bool = False
    """The 410 is the HTTP status instead of an ERROR line."""
    half_lines: int = 0
    """This many watch events are cut off in the middle of their line."""
    bad_lines: int = 0
    """This many lines of garbage go out in front of watch events."""
    watch_errors: list[int] = field(default_factory=list)
    """Codes of ERROR lines, one for each of the next watches."""
    list_gone: int = 0
    """This many continued lists are answered with 410."""
    clock_skew_s: float = 0.0
    """Added to every time stamp the server writes."""
    eviction_budget: int | None = None
    """Evictions still allowed by disruption budgets; None = no budget stands in the way."""
    eviction_retry_after_s: float = 10.0
    """Retry-After of a refused eviction."""
    failures: list[Failure] = field(default_factory=list)
    seed: int = 1

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._thaw = asyncio.Event()
        self._thaw.set()

    def freeze_watches(self) -> None:
        """Watches stay open, or open, and say nothing: no events, no bookmarks, no end."""
        self._thaw.clear()

    def thaw_watches(self) -> None:
        """Watches go on, with what they held back."""
        self._thaw.set()

    async def thawed(self) -> None:
        """Wait while watches are frozen."""
        await self._thaw.wait()

    def fail(self, status: int, **how: object) -> Failure:
        """Answer coming requests with this status; see :class:`Failure` for ``how``."""
        failure = Failure(status=status, **how)  # type: ignore[arg-type]
        self.failures.append(failure)
        return failure

    def strike(self, verb: str, plural: str, subresource: str, name: str, *, after: bool) -> None:
        """Raise the first failure that takes this request."""
        for failure in self.failures:
            if failure.after_write is not after:
                continue
            if not failure.takes(verb, plural, subresource, name):
                continue
            if failure.rate < 1.0 and self._random.random() >= failure.rate:
                continue
            if failure.times is not None:
                failure.times -= 1
            raise Refusal(
                failure.status,
                failure.message,
                failure.reason,
                retry_after_s=failure.retry_after_s,
            )
