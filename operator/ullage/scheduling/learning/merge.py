# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Adds observations to the profile of a class.

Every row counts once, by its identity; the result depends only on the rows and not on the time or
number of their sightings, so a restart of the operator changes nothing. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from statistics import median
from typing import Final

from ullage.api.observations import Fingerprint as WireFingerprint
from ullage.api.observations import Observation
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.profile import newest_first, profile_as_stored
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.profile import (
    InterferenceEntry,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
    Source,
    StepRow,
)
from ullage.cluster.values.quantiles import quantile_of
from ullage.engines.admission.colocations import in_turn
from ullage.engines.admission.drift import Drift, follow
from ullage.engines.admission.records import Fingerprint, Partner, origin_of
from ullage.scheduling.learning.sift import believable
from ullage.scheduling.learning.throughput import remeasured
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.times import MIXTURE_HALF_LIFE_S, OLD_IMAGE_S

MOST_ROWS: Final = 200
SHARES: Final = 4
"""Depth of a mixture of shares; see :func:`_branch`."""
MOST_SOLO: Final = 64
KNOWN_ROWS: Final = 10
"""Rows that make a class known, and a confidence of one half."""
CELL_ROWS: Final = 3
"""Equal rows needed to detect an outlier."""
SPREAD_LEAST: Final = 0.05
"""Minimum standard deviation of log times: repeats scatter that much (our start value)."""
MEMORY: Final = 20
"""Windows in the running means of counters, and of the load."""
LOAD_QUANTILE: Final = 0.9
"""Fraction of the newest windows that are at most the reported load (not measured)."""
MOST_PERCENTILES: Final = 8
DISAGREE: Final = 0.2
"""Relative difference allowed between a declared and the measured speed."""


@dataclass(slots=True)
class _Book:
    """The profile's status while observations are added."""

    status: ProfileStatus
    rows: list[StepRow]
    solo: dict[tuple[str, int], SoloEntry]
    drift: Drift
    drifted: bool = False
    image_changed: bool = False
    odd_prints: int = 0
    family: str = field(default="")

    def start_again(self, at_s: float) -> None:
        """Discard earlier measurements; rows up to then count no more."""
        self.rows.clear()
        self.solo.clear()
        self.drift = Drift()
        self.status = replace(
            self.status,
            since=at_s - 1,
            requests_per_s=None,
            lane_persistent_mib=0,
            lane_ephemeral_mib=0,
            throughput=(),
            throughput_basis="",
        )


def news(status: ProfileStatus, observations: Sequence[Observation]) -> list[Observation]:
    """The observations that are not in the rows yet and would be kept, oldest first."""
    ids = {row.id for row in status.step_time}
    fresh = {
        observation.id: observation
        for observation in observations
        if observation.id not in ids
        and observation.at_s > status.since
        and not _late(status, observation)
    }
    if len(ids) + len(fresh) > MOST_ROWS:
        stay = {row.id for row in kept([*status.step_time, *map(_row, fresh.values())])}
        fresh = {name: observation for name, observation in fresh.items() if name in stay}
    return sorted(fresh.values(), key=lambda observation: (observation.at_s, observation.id))


def kept(rows: Sequence[StepRow]) -> tuple[StepRow, ...]:
    """At most ``MOST_ROWS`` rows: types of device, namespaces, neighbours and shares in turn.

    Every type of device gives one row in turn; of a type every namespace beside the class; of a
    namespace every set of classes, windows alone and pauses; of a set every mixture of shares,
    older ones less often. So hours beside one partner displace no other partner, and a namespace
    with ever new classes displaces its own. Rows that are left out stay so when more arrive.

    Args:
        rows: Rows of one class, in any order.

    Returns:
        The kept rows, newest first.
    """
    if len(rows) <= MOST_ROWS:
        return tuple(sorted(rows, key=newest_first))
    ranks: Counter[tuple[object, ...]] = Counter()
    ranked = []
    for row in sorted(rows, key=newest_first):
        mixture = _branch(row, SHARES)
        ranks[mixture] += 1
        # log of rank x 2^(age / half-life): half as many rows for every half-life of age
        ranked.append((math.log2(ranks[mixture]) - row.at_s / MIXTURE_HALF_LIFE_S, row))
    order = [row for _, row in sorted(ranked, key=lambda pair: pair[0])]
    for depth in range(SHARES - 1, 0, -1):
        order = in_turn(order, partial(_branch, depth=depth), len(order))
    return tuple(sorted(order[:MOST_ROWS], key=newest_first))


def _branch(row: StepRow, depth: int) -> tuple[object, ...]:
    """Type of device, namespaces beside the class, classes, shares: the first ``depth``."""
    classes = tuple(partner.workload_class for partner in row.partners)
    shares = (row.share, *(partner.percent for partner in row.partners))
    origins = tuple(sorted({origin_of(name) for name in classes} or {""}))
    return (row.accelerator, origins, (row.counterfactual, classes), shares)[:depth]


def _late(status: ProfileStatus, observation: Observation) -> bool:
    """True when an observation is of the previous image, whose last containers are terminating."""
    return (
        bool(observation.image)
        and observation.image == status.former_hash
        and observation.at_s <= status.since + OLD_IMAGE_S
    )


def learned(
    profile: ProfileRecord,
    fresh: Sequence[Observation],
    inflicted: Mapping[str, Sequence[float]],
    now: float,
) -> tuple[ProfileStatus, int]:
    """The status with these observations, and the number of fingerprints left out.

    Args:
        profile: The class so far, declared and measured.
        fresh: See :func:`news`.
        inflicted: Slowdowns of others beside this class alone, by accelerator.
        now: The current time, seconds since the epoch.
    """
    before = profile.status
    book = _Book(
        status=before,
        rows=list(before.step_time),
        solo={(row.device, row.share): row for row in before.solo},
        drift=Drift(slower=before.drift_slower, faster=before.drift_faster),
        family=before.family,
    )
    for observation in fresh:
        _add(book, observation)
    return _closed(profile, book, inflicted, now), book.odd_prints


def _add(book: _Book, observation: Observation) -> None:
    status = book.status
    if _late(status, observation):
        return
    if observation.image and observation.image != status.source_hash:
        if status.source_hash:
            book.start_again(observation.at_s)
            book.image_changed = True
        book.status = replace(
            book.status, source_hash=observation.image, former_hash=status.source_hash, novel=False
        )
    row = _row(observation)
    _follow(book, row)
    book.rows.append(row)
    book.family = observation.family or book.family
    if not row.partners:
        _add_solo(book, observation, row)


def _row(observation: Observation) -> StepRow:
    solo = observation.solo_step_micros
    return StepRow(
        id=observation.id,
        accelerator=observation.accelerator,
        share=observation.percent,
        partners=tuple(
            Partner(workload_class=other.workload_class, percent=other.percent)
            for other in sorted(
                observation.partners, key=lambda other: (other.workload_class, other.percent)
            )
        ),
        step_s=observation.step_micros / 1e6,
        slowdown=observation.step_micros / solo if solo else None,
        max_slowdown=observation.max_slowdown_percent / 100
        if observation.max_slowdown_percent
        else None,
        requests_per_s=observation.requests_milli / 1e3 if observation.requests_milli else None,
        latency_s=observation.latency_micros / 1e6 if _says_latency(observation) else None,
        quantile=quantile_of(observation.percentile) if _says_latency(observation) else None,
        at_s=float(observation.at_s),
        counterfactual=observation.frozen,
        probation=observation.probation,
        violated=observation.violated,
    )


def _says_latency(observation: Observation) -> bool:
    return bool(observation.latency_micros and observation.percentile)


def _follow(book: _Book, row: StepRow) -> None:
    """Compare a row with similar ones; drifting times make the class unknown again."""
    mixture = (row.accelerator, row.share, row.partners, row.counterfactual)
    alike = [
        math.log(other.step_s)
        for other in book.rows
        if (other.accelerator, other.share, other.partners, other.counterfactual) == mixture
    ]
    if len(alike) < CELL_ROWS:
        return
    middle = median(alike)
    spread = max(SPREAD_LEAST, 1.4826 * median(abs(log - middle) for log in alike))
    book.drift = follow(book.drift, (math.log(row.step_s) - middle) / spread)
    if book.drift.drifted():
        book.start_again(row.at_s)
        book.status = replace(book.status, novel=True)
        book.drifted = True


def _add_solo(book: _Book, observation: Observation, row: StepRow) -> None:
    key = (row.accelerator, row.share)
    entry = book.solo.get(key) or SoloEntry(device=row.accelerator, share=row.share)
    print_ = observation.fingerprint
    if print_ is not None and not believable(print_):
        print_, book.odd_prints = None, book.odd_prints + 1
    samples = entry.samples + 1
    mixed = _mixed(entry.fingerprint, print_, samples) if print_ is not None else entry.fingerprint
    book.solo[key] = replace(entry, fingerprint=mixed, sm_util=mixed.sm or 0.0, samples=samples)


def _mixed(old: Fingerprint, new: WireFingerprint, samples: int) -> Fingerprint:
    """Running means of the counters; the peak for memory."""
    measured = _measured(new)
    weight = 1 / min(samples, MEMORY)
    values: dict[str, float | None] = {}
    for counter in fields(Fingerprint):
        before, after = getattr(old, counter.name), getattr(measured, counter.name)
        if after is None or before is None:
            values[counter.name] = before if after is None else after
        else:
            values[counter.name] = before + (after - before) * weight
    if measured.peak_memory_mib is not None:
        values["peak_memory_mib"] = max(measured.peak_memory_mib, old.peak_memory_mib or 0.0)
    return Fingerprint(**values)


def _measured(new: WireFingerprint) -> Fingerprint:
    """A wire fingerprint as fractions and SI units; 0 is "not measured" there."""

    def part(permille: int) -> float | None:
        return min(1.0, permille / 1000) if permille else None

    def amount(value: int, factor: float) -> float | None:
        return value * factor if value else None

    return Fingerprint(
        sm=part(new.sm_permille),
        dram=part(new.dram_permille),
        tensor=part(new.tensor_permille),
        fp32=part(new.fp32_permille),
        fp16=part(new.fp16_permille),
        fp64=part(new.fp64_permille),
        occupancy=part(new.occupancy_permille),
        kernel_idle=part(new.kernel_idle_permille),
        duty_cycle=part(new.duty_permille),
        cpu_cores=amount(new.cpu_permille, 1e-3),
        power_watts=amount(new.power_milliwatts, 1e-3),
        pcie_tx_bytes_per_s=amount(new.pcie_tx_kib_per_s, 1024.0),
        pcie_rx_bytes_per_s=amount(new.pcie_rx_kib_per_s, 1024.0),
        peak_memory_mib=amount(new.peak_memory_mib, 1.0),
    )


def _closed(
    profile: ProfileRecord, book: _Book, inflicted: Mapping[str, Sequence[float]], now: float
) -> ProfileStatus:
    rows = kept(book.rows)
    solo = _solo_table(book, rows)
    status = replace(
        book.status,
        observed_generation=profile.generation,
        source=Source.MEASURED.value if rows else book.status.source,
        family=book.family,
        updated=whole_second(now),
        last_used=max((row.at_s for row in rows), default=book.status.last_used),
        confidence=len(rows) / (len(rows) + KNOWN_ROWS),
        novel=book.status.novel and len(rows) < KNOWN_ROWS,
        drift_slower=book.drift.slower,
        drift_faster=book.drift.faster,
        requests_per_s=_offered(rows, book.status.requests_per_s),
        solo=solo,
        step_time=rows,
        interference=_interference(rows, inflicted),
        throughput=remeasured(book.status.throughput, rows, solo),
    )
    desired = _desired(profile, status, book)
    conditions = merged(profile.status.conditions, desired, whole_second(now), profile.generation)
    return profile_as_stored(replace(status, conditions=conditions))


def _solo_table(book: _Book, rows: Sequence[StepRow]) -> tuple[SoloEntry, ...]:
    """Medians of the times alone among the rows, else the previous ones.

    Pauses have precedence over windows where there are enough: input, host and load are those of
    the same seconds, so the slowdown is caused by the others alone.
    """
    times: dict[tuple[str, int], list[StepRow]] = {}
    for row in rows:
        if not row.partners:
            times.setdefault((row.accelerator, row.share), []).append(row)
    for key, alone in times.items():
        if key in book.solo:
            pauses = [row.step_s for row in alone if row.counterfactual]
            seconds = pauses if len(pauses) >= CELL_ROWS else [row.step_s for row in alone]
            book.solo[key] = replace(book.solo[key], steps_per_second=1 / median(seconds))
            book.solo[key] = _with_latency(book.solo[key], rows)
    ranked = sorted(book.solo, key=lambda key: (-book.solo[key].samples, key))[:MOST_SOLO]
    return tuple(book.solo[key] for key in sorted(ranked))


def _with_latency(entry: SoloEntry, rows: Sequence[StepRow]) -> SoloEntry:
    """Medians of the latency alone, by quantile, and of the load in the same windows.

    Windows of a pause do not count: they are short, and begin with a backlog.
    """
    times: dict[float, list[float]] = {}
    loads: list[float] = []
    for row in rows:
        alike = (row.accelerator, row.share) == (entry.device, entry.share)
        if not alike or row.partners or row.counterfactual or not row.requests_per_s:
            continue
        if row.latency_s is not None and row.quantile is not None:
            times.setdefault(row.quantile, []).append(row.latency_s)
            loads.append(row.requests_per_s)
    if not times:
        return entry
    kept = sorted(times, key=lambda time: (-len(times[time]), time))[:MOST_PERCENTILES]
    return replace(
        entry,
        measured=tuple((quantile, median(times[quantile])) for quantile in sorted(kept)),
        requests_per_s=median(loads),
    )


def _offered(rows: Sequence[StepRow], before: float | None) -> float | None:
    """The offered load of one replica, from the newest windows (newest first).

    A high quantile, since the admitted load must include busy hours; rounded up to two digits, so
    that small changes change no decision. Source: derived.
    """
    newest = sorted([row.requests_per_s for row in rows if row.requests_per_s][:MEMORY])
    if not newest:
        return before
    load = newest[math.ceil(LOAD_QUANTILE * len(newest)) - 1]
    digit = 10.0 ** (math.floor(math.log10(load)) - 1)
    return math.ceil(load / digit - 1e-9) * digit


def _interference(
    rows: Sequence[StepRow], inflicted: Mapping[str, Sequence[float]]
) -> tuple[InterferenceEntry, ...]:
    suffered: dict[str, list[float]] = {}
    for row in rows:
        if row.partners and row.slowdown:
            suffered.setdefault(row.accelerator, []).append(math.log(row.slowdown))
    return tuple(
        InterferenceEntry(
            accelerator=accelerator,
            sensitivity=_mean(suffered[accelerator]),
            aggressiveness=(
                _mean([math.log(slowdown) for slowdown in inflicted[accelerator]])
                if inflicted.get(accelerator)
                else None
            ),
            rows=len(suffered[accelerator]),
        )
        for accelerator in sorted(suffered)
    )


def _mean(logs: Sequence[float]) -> float:
    return math.exp(math.fsum(logs) / len(logs))


def _desired(profile: ProfileRecord, status: ProfileStatus, book: _Book) -> list[DesiredCondition]:
    """Conditions of the profile: freshness of its values, and conflict with declared ones."""
    before = profile.status.condition(ConditionType.FRESH)
    if status.novel:
        fresh = DesiredCondition(ConditionType.FRESH, False, Reason.DRIFTED, _DRIFTED)
    elif len(status.step_time) >= KNOWN_ROWS or before is None:
        fresh = DesiredCondition(ConditionType.FRESH, True, Reason.MEASURED)
    elif book.image_changed:
        fresh = DesiredCondition(ConditionType.FRESH, False, Reason.IMAGE_CHANGED, _NEW_IMAGE)
    else:
        fresh = DesiredCondition(
            ConditionType.FRESH, before.status == "True", _reason(before.reason), before.message
        )
    conflict = _conflict(profile.solo, status.solo)
    differs = DesiredCondition(ConditionType.CONFLICTING, True, Reason.DECLARED_DIFFERS, conflict)
    isolated = profile.status.condition(ConditionType.ISOLATED)
    # in the order in which conditions are read back
    desired = [differs, fresh] if conflict else [fresh]
    if isolated is not None:
        reason = _reason(isolated.reason)
        desired.append(DesiredCondition(ConditionType.ISOLATED, True, reason, isolated.message))
    return desired


def _reason(word: str) -> Reason:
    try:
        return Reason(word)
    except ValueError:
        return Reason.MEASURED


_DRIFTED: Final = "times are not what they were; the class counts as unknown until it has new rows"
_NEW_IMAGE: Final = "another image runs under the same name; what was measured starts again"


def _conflict(declared: Sequence[SoloEntry], measured: Sequence[SoloEntry]) -> str:
    """The first declared speed contradicted by measurements; empty = none."""
    speeds = {(row.device, row.share): row for row in measured}
    for row in declared:
        speed = speeds.get((row.device, row.share))
        if speed is None or not (row.steps_per_second and speed.steps_per_second):
            continue
        if abs(row.steps_per_second / speed.steps_per_second - 1) > DISAGREE:
            return (
                f"{row.device} at {row.share} %: declared {row.steps_per_second:g} steps/s, "
                f"measured {speed.steps_per_second:.4g}; the measured value is used"
            )
    return ""
