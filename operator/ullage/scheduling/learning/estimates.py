# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds of a class on types of device where it never ran, from all measurements.

Each method has bounds; the one with the narrowest is used. Measured speeds must never be changed,
and nothing is estimated without evidence: classes of other families are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.cluster.records.profile import DeviceProfileRecord, Method, ProfileRecord, Source
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.allocation.estimator import complete
from ullage.engines.allocation.model import Floats
from ullage.engines.devicechoice.fit import LearnedOpTimes
from ullage.engines.devicechoice.intervals import Interval, around, factor_of
from ullage.engines.devicechoice.transfer import FEWEST_ROWS, Config, learn_transfer
from ullage.scheduling.learning import operations as by_ops
from ullage.scheduling.learning.throughput import Throughput, bounded, family_of, known
from ullage.scheduling.prediction.knowledge import by_scope

MOST_CONFIDENT: Final = 0.5
"""Confidence of an estimate without any error; that of a measured speed starts there."""
MOST_REFERENCES: Final = 32
"""Maximum of classes that an estimate compares with; those of the family come first."""
LEAST_FACTOR: Final = 1.05
"""Minimum width of a comparison's bounds (our choice: repeats of a step scatter that much)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """An estimated step with its bounds, its method, and its number of classes."""

    step: Interval
    method: Method
    samples: int = 0

    @property
    def factor(self) -> float:
        """Upper bound of the step, as a multiple of the estimate."""
        return self.step.high_s / self.step.value_s


@dataclass(slots=True)
class Evidence:
    """Evidence in profiles that may learn from each other.

    Tables are built at first use.
    """

    profiles: Sequence[ProfileRecord]
    devices: Mapping[str, DeviceProfileRecord]
    accelerators: frozenset[str]
    """Types of device in the cluster."""
    _known: dict[tuple[str, str], Mapping[str, Throughput]] = field(default_factory=dict)
    fits: by_ops.OpTimeFits = field(default_factory=by_ops.op_time_fits)
    _timed: dict[str, by_ops.OpTables | None] = field(default_factory=dict)

    def known(self, profile: ProfileRecord) -> Mapping[str, Throughput]:
        """Measured and declared speeds of a class."""
        key = (profile.namespace, profile.name)
        if key not in self._known:
            self._known[key] = known(profile)
        return self._known[key]

    def references(self, profile: ProfileRecord, *needed: str) -> list[ProfileRecord]:
        """Other classes with speeds on all of these types; those of the family first."""
        family = family_of(profile)
        others = [
            other
            for other in self.profiles
            if other.workload_class != profile.workload_class
            and all(name in self.known(other) for name in needed)
        ]
        others.sort(
            key=lambda other: (
                not family or family_of(other) != family,
                other.workload_class,
                other.name,
            )
        )
        return others[:MOST_REFERENCES]

    def op_tables(self, accelerator: str) -> by_ops.OpTables | None:
        """Op tables timed on a type; ``None`` = too few."""
        if accelerator not in self._timed:
            self._timed[accelerator] = by_ops.timed_on(self.profiles, accelerator)
        return self._timed[accelerator]

    def op_times(self, profile: ProfileRecord, accelerator: str) -> LearnedOpTimes | None:
        """Op times fitted on these tables, in the best design.

        Errors are those of left-out classes where the family of the class is among them, else of
        left-out families.
        """
        tables = self.op_tables(accelerator)
        if tables is None:
            return None
        known_ = family_of(profile) in {family for _, family, _ in tables}
        return self.fits(
            tuple((name, name if known_ else family or name, ops) for name, family, ops in tables)
        )

    def has_kin(self, profile: ProfileRecord, *needed: str) -> bool:
        """True when another class of the family has speeds on all of these types."""
        nearest = self.references(profile, *needed)[:1]
        return any(family_of(other) == family_of(profile) for other in nearest)


def gather(snapshot: Snapshot, fits: by_ops.OpTimeFits | None = None) -> dict[str, Evidence]:
    """The evidence in a snapshot, by scope of namespaces that learn from each other."""
    fits = fits or by_ops.op_time_fits()
    accelerators = frozenset(
        device.model for node in snapshot.gpu_nodes.values() for device in node.devices
    )
    return {
        scope: Evidence(
            profiles=profiles,
            devices=snapshot.device_profiles,
            accelerators=accelerators,
            fits=fits,
        )
        for scope, profiles in by_scope(snapshot).items()
    }


def estimated(profile: ProfileRecord, evidence: Evidence) -> tuple[Throughput, ...]:
    """Estimates for the types in the cluster where the class was not measured, by accelerator.

    A type with a declared speed gets one too: readers use the more certain of both.
    """
    speeds = known(profile)
    measured = {name for name, entry in speeds.items() if entry.source is Source.MEASURED}
    estimates: list[Throughput] = []
    for accelerator in sorted(evidence.accelerators - measured):
        others = {name: entry for name, entry in speeds.items() if name != accelerator}
        guesses = list(_guesses(profile, others, accelerator, evidence))
        if guesses:
            estimates.append(_entry(accelerator, min(guesses, key=lambda guess: guess.factor)))
    return tuple(estimates)


def _entry(accelerator: str, guess: Guess) -> Throughput:
    step = guess.step if guess.factor > LEAST_FACTOR else around(guess.step.value_s, LEAST_FACTOR)
    return Throughput(
        accelerator=accelerator,
        steps_per_second=bounded(1 / step.value_s),
        low=bounded(1 / step.high_s),
        high=bounded(1 / step.low_s),
        source=Source.ESTIMATED,
        method=guess.method,
        confidence=MOST_CONFIDENT * step.value_s / step.high_s,
        samples=guess.samples,
    )


def _guesses(
    profile: ProfileRecord, speeds: Mapping[str, Throughput], accelerator: str, evidence: Evidence
) -> Iterator[Guess]:
    """An estimate by every method with evidence.

    Classes of other families predict a class no better than the average ratio of both types does
    (measured: 51 against 52 %), so without others of its family there is no comparison.
    """
    # the most certain speed of the class first
    anchors = sorted(
        (entry for entry in speeds.values() if entry.steps_per_second > 0),
        key=lambda entry: (entry.source is Source.MEASURED, entry.confidence, entry.accelerator),
        reverse=True,
    )
    for anchor in anchors:
        if evidence.has_kin(profile, anchor.accelerator, accelerator):
            yield from _siblings(profile, anchor, accelerator, evidence)
            yield from _neighbours(profile, speeds, (anchor.accelerator, accelerator), evidence)
            break
    for anchor in anchors[:1]:
        yield from _roofline(profile, anchor, accelerator, evidence)
    timed = evidence.op_times(profile, accelerator) if profile.op_table is not None else None
    if timed is not None and profile.op_table is not None:
        timed_speed = speeds.get(profile.op_table.accelerator)
        step = by_ops.predicted(
            timed, profile, 1 / timed_speed.steps_per_second if timed_speed else None
        )
        if step is not None:
            yield Guess(step=step, method=Method.OPS, samples=timed.networks)


def _siblings(
    profile: ProfileRecord, anchor: Throughput, accelerator: str, evidence: Evidence
) -> Iterator[Guess]:
    """By family and length of step, from classes that were measured on both types."""
    rows: list[tuple[Config, float]] = []
    for reference in evidence.references(profile, anchor.accelerator, accelerator):
        speeds = evidence.known(reference)
        at_anchor = speeds[anchor.accelerator].steps_per_second
        at_target = speeds[accelerator].steps_per_second
        if at_anchor > 0 and at_target > 0:
            rows.append((_config(reference, at_anchor), 1 / at_target))
    if len(rows) < FEWEST_ROWS:
        return
    step = learn_transfer(rows).step(_config(profile, anchor.steps_per_second))
    yield Guess(step=step, method=Method.SIBLINGS, samples=len(rows))


def _config(profile: ProfileRecord, steps_per_second: float) -> Config:
    # batch and number format are part of the class: another batch is another class
    return Config(family=family_of(profile), batch=1, gpus=1, step_s=1 / steps_per_second)


def _neighbours(
    profile: ProfileRecord,
    speeds: Mapping[str, Throughput],
    pair: tuple[str, str],
    evidence: Evidence,
) -> Iterator[Guess]:
    """By the classes whose speeds on the observed types have the same ratios (kNN).

    Rows are speeds over that on the anchor; columns are scaled by their largest, so that cells are
    in [0, 1] as the completion requires. The bounds are those of references when each is estimated
    from the others. Source: derived from allocation's estimator.
    """
    anchor, accelerator = pair
    columns = [*sorted(speeds), accelerator]
    alike = [
        reference
        for reference in evidence.references(profile, anchor, accelerator)
        if evidence.known(reference)[anchor].steps_per_second > 0
    ]
    if not alike:
        return
    table = np.array([_ratios(evidence.known(other), columns, anchor) for other in alike])
    rate = _completed(table, np.array(_ratios(speeds, columns, anchor)))
    if rate is None:
        return
    errors = list(_left_out(table))
    step = around(1 / (rate * speeds[anchor].steps_per_second), factor_of(errors))
    yield Guess(step=step, method=Method.NEIGHBOURS, samples=len(alike))


def _left_out(table: Floats) -> Iterator[float]:
    """Estimated / true - 1 of each reference's last cell, from the others.

    Rows are ratios as in ``_neighbours``, with every cell of the last column known.
    """
    for at, row in enumerate(table):
        others = [other for other in range(len(table)) if other != at]
        hidden = row.copy()
        hidden[-1] = np.nan
        rate = _completed(table[others], hidden) if others else None
        if rate is not None and row[-1] > 0:
            yield rate / float(row[-1]) - 1.0


def _completed(table: Floats, row: Floats) -> float | None:
    """The last cell of a row of ratios; ``None`` without an estimate."""
    scale = np.fmax.reduce(np.vstack([table, row]), axis=0)
    scale = np.where(np.isnan(scale), 1.0, scale)  # a type unknown to both sides has no ratio
    if not (scale > 0).all():
        return None
    completed = complete(np.minimum(table / scale, 1.0), np.minimum(row / scale, 1.0))
    value = float(completed.values[-1]) * float(scale[-1])
    return value if value > 0 else None


def _ratios(row: Mapping[str, Throughput], columns: Sequence[str], anchor: str) -> list[float]:
    base = row[anchor].steps_per_second
    return [row[name].steps_per_second / base if name in row else math.nan for name in columns]


def _roofline(
    profile: ProfileRecord, anchor: Throughput, accelerator: str, evidence: Evidence
) -> Iterator[Guess]:
    """By the peak rates of both types."""
    anchor_device = evidence.devices.get(anchor.accelerator)
    target_device = evidence.devices.get(accelerator)
    if anchor_device is None or target_device is None:
        return
    step = by_ops.roofline(profile, (anchor_device, target_device), 1 / anchor.steps_per_second)
    if step is not None:
        yield Guess(step=step, method=Method.ROOFLINE)
