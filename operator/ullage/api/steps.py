# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The records by which a container tells the node agent of its progress: one, and one a rank.

Standard library only; must never change without a new version, because containers of older images
write it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from ullage.api.readers import WireError

# The 64-byte step record (little endian), shared by mmap between container and agent.
STEP_MAGIC: Final = b"ULST"
STEP_VERSION: Final = 1
STEP_RECORD_BYTES: Final = 64
STEP_LAYOUT: Final = struct.Struct("<4sIQQQQIIQQ")
"""magic, version, steps, last_step_ns, ewma_ns, items, sm_count, resumed_at, last_checkpoint_ns,
busy_ns."""
STEP_WORDS: Final[Mapping[str, int]] = {
    "steps": 1,
    "last_step_ns": 2,
    "ewma_ns": 3,
    "items": 4,
    "last_checkpoint_ns": 6,
    "busy_ns": 7,
}
"""Index of each field in the record seen as eight 8-byte words (word 5: sm_count in its lower half,
resumed_at in its upper one)."""
RESUMED_AT_MAX: Final = (1 << 32) - 1
"""The greatest step that a start can be said to go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """Progress as the container itself reports it: a claim, never a ground to grant more.

    ``busy_ns`` is the sum of all step times, 0 from a writer that does not keep it. Two readings
    give the exact mean between them, where ``ewma_ns`` of short steps misses the pauses that a CPU
    quota puts between bursts of them.

    ``steps`` counts from 0 at every start. ``resumed_at`` is the step of the checkpoint that the
    start went on from, 0 = from the beginning, or a writer that does not say.
    """

    steps: int
    last_step_ns: int
    ewma_ns: int
    items: int
    sm_count: int
    last_checkpoint_ns: int
    busy_ns: int = 0
    resumed_at: int = 0

    @classmethod
    def unpack(cls, raw: bytes) -> StepRecord | None:
        """Decode a record; ``None`` when nothing was begun (all zero).

        Raises:
            WireError: wrong length, magic or version.
        """
        numbers = _numbers(raw, "step record", STEP_LAYOUT, STEP_MAGIC, STEP_VERSION)
        if numbers is None:
            return None
        steps, last, ewma, items, sms, resumed, checkpoint, busy = numbers
        return cls(
            steps=steps,
            last_step_ns=last,
            ewma_ns=ewma,
            items=items,
            sm_count=sms,
            last_checkpoint_ns=checkpoint,
            busy_ns=busy,
            resumed_at=resumed,
        )


# The record of one rank of a program, beside the orders of traces; words and order as above.
RANK_MAGIC: Final = b"ULRK"
RANK_VERSION: Final = 1
RANK_RECORD_BYTES: Final = 128
RANK_LAYOUT: Final = struct.Struct("<4sIQQIIQQQQQQQIIQQQ8x")
"""magic, version, steps, last_step_ns, rank, world, step_ns, compute_ns, wait_ns, data_wait_ns,
samples, batch_bytes, timed, batch, even_batch, even_reason, even_step_ns, throttled_ns; the
rest is for later versions."""
RANK_WORDS: Final[Mapping[str, int]] = {
    "steps": 1,
    "last_step_ns": 2,
    "step_ns": 4,
    "compute_ns": 5,
    "wait_ns": 6,
    "data_wait_ns": 7,
    "samples": 8,
    "batch_bytes": 9,
    "timed": 10,
    "batches": 11,
    "even_reason": 12,
    "even_step_ns": 13,
    "throttled_ns": 14,
}
"""Index of each field in the record seen as 8-byte words (word 3: rank in its lower half, world in
its upper one; word 11: batch and even_batch likewise)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """Steps of one rank as its program reports them: a claim.

    Short steps are not all timed. All but ``last_step_ns`` (CLOCK_MONOTONIC) are sums since the
    process's first step, those of times and batches over the timed steps, so two readings give
    means between them. Times are those of the thread that steps.

    Attributes:
        steps: Steps of the optimizer that stepped first.
        last_step_ns: End of the last one.
        rank: Its number in the job.
        world: Ranks of the job.
        step_ns: Time from step to step.
        compute_ns: From a batch to its last gradient, its own work.
        wait_ns: From there to the optimizer's step, mostly for other ranks.
        data_wait_ns: In the data loader, for batches.
        samples: Samples of its batches.
        batch_bytes: Bytes of their tensors.
        timed: Number of steps that were timed.
        batch: Samples of its last batch, where the program may divide batches unevenly; else 0.
        even_batch: Samples that it would have in an even division.
        even_reason: Code of the :class:`~ullage.api.rebalancing.EvenReason` for even batches.
        even_step_ns: Time from batch to batch while they were even; 0 = not known.
        throttled_ns: Time for which its container's processes were stopped at its CPU limit.
    """

    steps: int
    last_step_ns: int
    rank: int
    world: int
    step_ns: int
    compute_ns: int
    wait_ns: int
    data_wait_ns: int
    samples: int
    batch_bytes: int
    timed: int
    batch: int = 0
    even_batch: int = 0
    even_reason: int = 0
    even_step_ns: int = 0
    throttled_ns: int = 0

    @classmethod
    def unpack(cls, raw: bytes) -> RankRecord | None:
        """Decode a record; ``None`` when nothing was begun (all zero).

        Raises:
            WireError: wrong length, magic or version.
        """
        numbers = _numbers(raw, "rank record", RANK_LAYOUT, RANK_MAGIC, RANK_VERSION)
        if numbers is None:
            return None
        names = (field.name for field in fields(cls))
        return cls(**dict(zip(names, numbers, strict=True)))


def _numbers(
    raw: bytes, what: str, layout: struct.Struct, magic: bytes, version: int
) -> list[int] | None:
    """The words of a record after its magic and version; ``None`` when all of it is zero.

    Raises:
        WireError: wrong length, magic or version.
    """
    if len(raw) != layout.size:
        raise WireError(f"{what} has {len(raw)} bytes, expected {layout.size}")
    if not any(raw):
        return None
    seen_magic, seen_version, *numbers = layout.unpack(raw)
    if seen_magic != magic or seen_version != version:
        raise WireError(f"{what} has magic {seen_magic!r} version {seen_version}")
    return numbers
