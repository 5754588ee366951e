# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Data input on the wire: containers of a node that starve on a volume because of another.

Standard library only. Figures come from the kernel's counters; what a container wants is derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.wire_fields import NEEDED, Counted, Name, Text, Word, at_most, between, known_word

MAX_STARVATIONS: Final = 16
"""Most starving containers in one status."""


MOST_WORKERS: Final = 64
"""Most workers of a data loader."""
MOST_PREFETCH: Final = 16


class IoFairness(StrEnum):
    """Answer to a container that takes too much of a volume."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class StarvationCause(StrEnum):
    """The resource of a volume that the other container takes too much of."""

    BANDWIDTH = "Bandwidth"
    REQUESTS = "Requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStarvation(Wire):
    """A container gets too little of a volume for several windows, because another takes more."""

    volume: Annotated[Text, NEEDED, at_most(200)]
    """Block device, and the volume of Kubernetes on it where the node tells it."""
    pod_uid: Annotated[Word, NEEDED]
    """UID of the pod that starves."""
    namespace: Annotated[Text, NEEDED, at_most(63)]
    """Namespace of that pod."""
    pod: Name
    """Name of that pod."""
    hog_uid: Annotated[Word, NEEDED]
    """UID of the pod that takes more than its fair share."""
    hog_namespace: Annotated[Text, NEEDED, at_most(63)]
    """Namespace of that pod."""
    hog: Name
    """Name of that pod."""
    hog_percent: Annotated[int, between(0, 100)] = 0
    """Part of the volume's bytes, or of its requests, that it takes, in percent."""
    cause: Annotated[StarvationCause, known_word(StarvationCause), NEEDED]
    """What it takes too much of."""
    bytes_per_s: Annotated[int, between(0, 1 << 53), "bytesPerSecond"] = 0
    """Bytes that the starving container gets per second."""
    wanted_bytes_per_s: Annotated[int, between(0, 1 << 53), "wantedBytesPerSecond"] = 0
    """Bytes per second that it would move if it did not wait; at most what the volume moved."""
    limit_bytes_per_s: Annotated[int, between(0, 1 << 53), "limitBytesPerSecond"] = 0
    """Limit of the other pod on the volume in force, bytes per second; absent = none."""
    windows: Counted = 0
    """Windows of five seconds in which it got too little."""

    def text(self, node: str) -> str:
        """The starvation in a line: where, how much of what, and who takes the rest."""
        limited = (
            f", limited to {megabytes(self.limit_bytes_per_s)} MB/s"
            if self.limit_bytes_per_s
            else ""
        )
        what = " of the requests" if self.cause is StarvationCause.REQUESTS else ""
        return (
            f"{node}:{self.volume} {megabytes(self.bytes_per_s)} MB/s of "
            f"{megabytes(self.wanted_bytes_per_s)} wanted; {self.hog_namespace}/{self.hog} takes "
            f"{self.hog_percent} %{what}{limited}"
        )


def megabytes(count: int) -> str:
    """Bytes as megabytes, with a digit behind the point below ten."""
    return f"{count / 1e6:.1f}" if count < 10_000_000 else f"{count / 1e6:.0f}"


class LoaderState(StrEnum):
    """Progress of the tuner of a data loader."""

    TUNING = "Tuning"
    TUNED = "Tuned"
    FIXED = "Fixed"
    """Its settings stay as the program has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLoader(Wire):
    """Workers of a program's data loader, as its tuner reports them: a claim."""

    state: Annotated[LoaderState, known_word(LoaderState), NEEDED]
    """Tuning: further settings are tried; Tuned; Fixed: the program's own settings stay."""
    first_workers: Annotated[int, between(0, MOST_WORKERS)] = 0
    """Workers that the program asked for."""
    workers: Annotated[int, between(0, MOST_WORKERS)] = 0
    """Best number of workers so far."""
    prefetch: Annotated[int, between(0, MOST_PREFETCH)] = 0
    """Batches that each of them loads ahead."""
    first_wait_percent: Annotated[int, between(0, 100)] = 0
    """Part of a step waited for data with the program's own settings, in percent."""
    wait_percent: Annotated[int, between(0, 100)] = 0
    """The same with the best settings."""
    message: Annotated[Text, at_most(200)] = ""
    """Reason why the settings stay."""

    def text(self) -> str:
        """The change in a line, with what it brought."""
        if self.state is LoaderState.FIXED:
            return (
                f"num_workers stays {self.first_workers}: {self.message}; data wait "
                f"{self.first_wait_percent} % of a step"
            )
        change = (
            f"num_workers {self.first_workers} -> {self.workers}"
            if self.workers != self.first_workers
            else f"num_workers stays {self.workers}"
        )
        return f"{change}: data wait {self.first_wait_percent} % -> {self.wait_percent} %"
