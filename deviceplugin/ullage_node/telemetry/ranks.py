# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the records of the ranks of every container: the parts of the time of their steps.

The records are claims of the tenant, read like step records: plain files alone, at most 16 a
container, implausible numbers refused. A rank's figures are means over its last half to whole
minute, so a rank keeps three readings, however long it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.api.captures import RANK_FILES
from ullage.api.readers import WireError
from ullage.api.rebalancing import EvenReason
from ullage.api.slices import ObservedRank
from ullage.api.steps import RANK_RECORD_BYTES, RankRecord
from ullage_node.model.devices import ContainerKey
from ullage_node.step_record import COUNT_MAX, read_stable
from ullage_node.times import RANK_SPAN_NS, RECORD_AHEAD_NS, STEP_MOST_NS
from ullage_node.traces.folder import names_in, open_folder

NUMBER_MAX: Final = (1 << 31) - 1


@dataclass(slots=True)
class _Readings:
    """Three readings of one rank, oldest first; means are those from the first to the last."""

    first: RankRecord
    middle: RankRecord
    last: RankRecord

    def take(self, record: RankRecord) -> None:
        """Add a reading; one of another process replaces all earlier ones."""
        if _went_back(self.last, record):
            self.first = self.middle = record
        elif record.last_step_ns - self.middle.last_step_ns >= RANK_SPAN_NS:
            self.first, self.middle = self.middle, record
        self.last = record

    def observed(self) -> ObservedRank:
        """The figures; times are 0 before the second reading with a timed step."""
        first, last = self.first, self.last
        steps = last.timed - first.timed

        def micros(sum_before: int, sum_after: int) -> int:
            return (sum_after - sum_before) // steps // 1000 if steps else 0

        return ObservedRank(
            rank=last.rank,
            steps=last.steps,
            step_micros=micros(first.step_ns, last.step_ns),
            compute_micros=micros(first.compute_ns, last.compute_ns),
            wait_micros=micros(first.wait_ns, last.wait_ns),
            data_wait_micros=micros(first.data_wait_ns, last.data_wait_ns),
            throttled_percent=self._throttled_percent(),
            batch=last.batch,
            even_batch=last.even_batch,
            even_reason=EvenReason.of_code(last.even_reason).value,
            even_step_micros=last.even_step_ns // 1000,
        )

    def _throttled_percent(self) -> int:
        """Of containers with several CPUs it may be more than the time, so at most 100."""
        elapsed = self.last.last_step_ns - self.first.last_step_ns
        throttled = self.last.throttled_ns - self.first.throttled_ns
        return min(100 * throttled // elapsed, 100) if elapsed > 0 else 0


class RankTelemetry:
    """Ranks of all containers below one directory of step records."""

    def __init__(self, steps_dir: Path) -> None:
        self._steps_dir = steps_dir
        self._readings: dict[ContainerKey, dict[str, _Readings]] = {}
        self.observed: Mapping[ContainerKey, tuple[ObservedRank, ...]] = {}
        """Figures of containers whose ranks step, by their numbers in the container."""
        self.invalid_total = 0
        """Number of records that were refused."""

    def sample(self, keys: Iterable[ContainerKey], now_ns: int) -> None:
        """Read the records of these containers; those of others are forgotten.

        Args:
            keys: All prepared containers.
            now_ns: CLOCK_MONOTONIC.
        """
        before, self._readings = self._readings, {}
        for key in keys:
            readings = before.get(key, {})
            made: dict[str, _Readings] = {}
            for name, record in self._records(key, now_ns):
                known = readings.get(name)
                if known is None:
                    known = _Readings(record, record, record)
                else:
                    known.take(record)
                made[name] = known
            if made:
                self._readings[key] = made
        self.observed = {
            key: tuple(readings[name].observed() for name in RANK_FILES if name in readings)
            for key, readings in self._readings.items()
        }

    def _records(self, key: ContainerKey, now_ns: int) -> Iterable[tuple[str, RankRecord]]:
        try:
            records = read_rank_records(self._steps_dir / key.directory, now_ns)
        except OSError:  # of a container that has no such directory
            return
        for name, record in records.items():
            if isinstance(record, RankRecord):
                yield name, record
            else:
                self.invalid_total += 1


def read_rank_records(steps_dir: Path, now_ns: int) -> dict[str, RankRecord | WireError]:
    """Records of the ranks of one container, by file, each or the reason why it is refused.

    Args:
        steps_dir: Directory of the container's step records.
        now_ns: CLOCK_MONOTONIC.

    Raises:
        OSError: there is no directory of ranks.
    """
    folder = open_folder(steps_dir)
    records: dict[str, RankRecord | WireError] = {}
    try:
        for name in sorted(names_in(folder) & set(RANK_FILES)):
            try:
                raw = read_stable(name, RANK_RECORD_BYTES, folder)
                record = RankRecord.unpack(raw) if raw is not None else None
                if record is not None:
                    _check(record, now_ns)
                    records[name] = record
            except WireError as error:
                records[name] = error
    finally:
        os.close(folder)
    return records


def _went_back(before: RankRecord, after: RankRecord) -> bool:
    """True if another process writes, or its numbers shrink."""
    return (
        after.rank != before.rank
        or after.steps < before.steps
        or after.last_step_ns < before.last_step_ns
        or any(new < old for old, new in zip(_sums(before), _sums(after), strict=True))
    )


def _sums(record: RankRecord) -> tuple[int, ...]:
    return (
        record.step_ns,
        record.compute_ns,
        record.wait_ns,
        record.data_wait_ns,
        record.samples,
        record.batch_bytes,
        record.timed,
        record.throttled_ns,
    )


def _check(record: RankRecord, now_ns: int) -> None:
    """Refuse impossible values: the clock is the host's.

    Raises:
        WireError: the text names the value.
    """
    if (
        max(record.steps, record.even_step_ns, *_sums(record)) > COUNT_MAX
        or record.world > NUMBER_MAX
    ):
        raise WireError("rank record holds a number that no program reaches")
    if not record.rank < record.world:
        raise WireError(f"rank record is of rank {record.rank} of {record.world}")
    if record.last_step_ns > now_ns + RECORD_AHEAD_NS:
        raise WireError("rank record holds a time that has not come yet")
    if record.timed > record.steps:
        raise WireError(f"rank record timed {record.timed} of {record.steps} steps")
    if record.step_ns > record.timed * STEP_MOST_NS:
        raise WireError("rank record reports steps of more than a day")
