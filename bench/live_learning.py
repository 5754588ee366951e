# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's own learning path, replayed: windows of observed pairs in, admissions out.

Every window becomes an observation of a node, goes into the profile of its class, and the learner
fits what the profiles keep, as in the running operator. Then every pair that was not observed is
asked about: what is admitted without a trial must keep its objectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.colocations import Gavel, Lucid
from ullage.api.observations import Fingerprint as WireFingerprint
from ullage.api.observations import Observation, ObservedPartner
from ullage.app.fit_worker import FitTask, Key, kept_rows, run_fit
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.calibration import GRID, Scored, band_of, fixed_sequence, thresholds
from ullage.engines.admission.colocations import Pairs, Sides, meetings, pairs, with_rows
from ullage.engines.admission.judging import LeftOut, Risk, judge, left_out_by_group
from ullage.engines.admission.learning import known_hyper, plain_rung
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.margin import margin
from ullage.engines.admission.model import STEPS, Cells, LearnedModel
from ullage.engines.admission.pair_gp import condition
from ullage.engines.admission.records import ClassProfile, Group, Tenant
from ullage.scheduling.learning.merge import learned, news
from ullage.scheduling.prediction.rows import class_profiles, rows_of

WINDOWS = 20
WINDOW_S = 30
APART_S = 3600
"""Between the meetings of two pairs."""
NOISE_SD = 0.02
NAMESPACE = "bench"
Chosen = Sequence[tuple[bool, bool]]
"""Admitted, and violated, for each pair that was asked about."""
BEGAN_S = 1_700_000_000
EPSILONS = (0.02, 0.05, 0.10, 0.15, 0.20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Classes of one type of device, and the slowdowns of their pairs.

    Attributes:
        name: What to call it; also the accelerator.
        classes: Names of classes.
        families: Family of each class.
        solo_s: Seconds of a step alone.
        busy: Part of the time that the device is busy, and the part of its memory bandwidth in
            use, measured alone; ``None`` = not measured.
        pairs: Numbers of two classes, and the slowdown of each.
    """

    name: str
    classes: tuple[str, ...]
    families: tuple[str, ...]
    solo_s: tuple[float, ...]
    busy: tuple[tuple[float, float] | None, ...]
    pairs: tuple[tuple[int, int, float, float], ...]


def gavel_source(table: Gavel, gpu: str) -> Source:
    """One type of device of the public throughputs; nothing was measured but times."""
    return Source(
        name=gpu,
        classes=tuple(f"c{number:02d}" for number in range(len(table.jobs))),
        families=table.families,
        solo_s=tuple(1.0 / table.solo[gpu, job] for job in table.jobs),
        busy=(None,) * len(table.jobs),
        pairs=table.pairs[gpu],
    )


def lucid_source(table: Lucid) -> Source:
    """The pairs of configurations, with utilisation measured alone."""
    names = sorted(table.profiles)
    index = {name: number for number, name in enumerate(names)}
    forth, back = table.rows[::2], table.rows[1::2]
    prints = [table.profiles[name].fingerprint for name in names]
    return Source(
        name="lucid",
        classes=tuple(f"c{number:02d}" for number in range(len(names))),
        families=tuple(table.profiles[name].family for name in names),
        solo_s=(1.0,) * len(names),
        busy=tuple((one.duty_cycle or 0.0, one.dram or 0.0) for one in prints),
        pairs=tuple(
            (index[one.workload_class], index[two.workload_class], one.slowdown, two.slowdown)
            for one, two in zip(forth, back, strict=True)
        ),
    )


def observations(
    source: Source,
    observed: Sequence[int],
    *,
    windows: int,
    max_slowdown: float,
    random: np.random.Generator,
) -> Iterator[Observation]:
    """What nodes report: every class alone first, then pair after pair, window by window."""
    at_s = BEGAN_S
    for number in range(len(source.classes)):
        yield _window(source, number, None, 1.0, at_s + number, max_slowdown, random)
    for pair in observed:
        at_s += APART_S
        left, right, slow_left, slow_right = source.pairs[pair]
        for window in range(windows):
            now = at_s + window * WINDOW_S
            yield _window(source, left, right, slow_left, now, max_slowdown, random)
            if left != right:
                yield _window(source, right, left, slow_right, now, max_slowdown, random)


def _window(
    source: Source,
    victim: int,
    partner: int | None,
    slowdown: float,
    at_s: int,
    max_slowdown: float,
    random: np.random.Generator,
) -> Observation:
    solo = source.solo_s[victim]
    step = solo * slowdown * float(np.exp(random.normal(0.0, NOISE_SD)))
    busy = source.busy[victim]
    beside = () if partner is None else (source.classes[partner],)
    return Observation(
        id=f"{at_s}.{victim}.{'' if partner is None else partner}",
        workload_class=source.classes[victim],
        namespace=NAMESPACE,
        accelerator=source.name,
        percent=100,
        step_micros=max(1, round(step * 1e6)),
        at_s=at_s,
        family=source.families[victim],
        partners=tuple(ObservedPartner(workload_class=one, percent=100) for one in beside),
        solo_step_micros=max(1, round(solo * 1e6)),
        max_slowdown_percent=round(100 * max_slowdown),
        fingerprint=None
        if busy is None or partner is not None
        else WireFingerprint(
            duty_permille=round(1000 * busy[0]), dram_permille=round(1000 * busy[1])
        ),
    )


def profiles_of(told: Sequence[Observation], block: int = 500) -> dict[str, ProfileRecord]:
    """The profiles that the operator keeps of these windows, written block by block."""
    by_class: dict[str, list[Observation]] = {}
    for one in told:
        by_class.setdefault(one.workload_class, []).append(one)
    found = {}
    for name, own in by_class.items():
        record = ProfileRecord(namespace=NAMESPACE, name=name, uid=name, workload_class=name)
        for start in range(0, len(own), block):
            seen = own[start : start + block]
            status, _ = learned(record, news(record.status, seen), {}, float(seen[-1].at_s))
            record = replace(record, status=status)
        found[name] = record
    return found


def fitted(source: Source, profiles: Mapping[str, ProfileRecord], risk: Risk) -> LearnedModel:
    """The model that the learner's process answers with, without cells."""
    task = FitTask(
        accelerator=source.name,
        previous=None,
        fit=True,
        wanted=(),
        risk=risk,
        at_s=max(row.at_s for one in profiles.values() for row in one.status.step_time),
        classes=0,
    )
    return run_fit(task, _by_key(profiles)).model


def _by_key(profiles: Mapping[str, ProfileRecord]) -> dict[Key, ProfileRecord]:
    return {(one.namespace, one.name): one for one in profiles.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a fitted model was learned from, and how it predicts rows that are left out."""

    model: LearnedModel
    data: Pairs
    sides: Sides
    left_out: Mapping[Group, LeftOut]

    @classmethod
    def of(cls, model: LearnedModel, profiles: Mapping[str, ProfileRecord]) -> Rows:
        """The rows in these profiles, with a model that :func:`fitted` learned from them."""
        snapshot = Snapshot(version=0, taken_at=0.0, profiles=_by_key(profiles))
        rows = meetings(kept_rows(rows_of(snapshot, model.accelerator)))
        sides = Sides.of(with_rows(class_profiles(snapshot, model.accelerator), rows))
        data = pairs(rows, sides)
        plain = plain_rung(sides)
        left_out = left_out_by_group(data, sides, known_hyper(model), plain=plain)
        return cls(model=model, data=data, sides=sides, left_out=left_out)

    def judged_for(self, risk: Risk) -> LearnedModel:
        """The model for another budget: its process and its cells stand, as in the operator."""
        plain = plain_rung(self.sides)
        judged = judge(self.data, self.sides, self.left_out, plain=plain, risk=risk)
        return replace(
            self.model,
            rungs=judged.rungs,
            trims=judged.trims,
            thresholds=thresholds(judged.scored, eps=risk.eps, confidence=risk.confidence),
        )

    def whole_cells(self) -> Cells:
        """The cells of all classes at whole devices, as the learner fills them.

        It fills a hundred mixtures of shares for each pair; a replay looks at one of them.
        """
        hyper, sides = known_hyper(self.model), self.sides
        if hyper is None:
            return Cells()
        count = len(sides.profiles)
        victims, aggressors = (one.ravel() for one in np.indices((count, count)))
        names = [profile.workload_class for profile in sides.profiles]
        logs = [
            sides.log_base(names[one], WHOLE_PERCENT, names[other], WHOLE_PERCENT)
            for one, other in zip(victims.tolist(), aggressors.tolist(), strict=True)
        ]
        ones = np.ones(count * count)
        asked = sides.rows(victims, aggressors, (ones, ones), np.array(logs))
        told = condition(self.data.rows, self.data.target, hyper).predict(asked)
        shape = (count, STEPS, count, STEPS)
        mean, sd = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
        mean[:, -1, :, -1], sd[:, -1, :, -1] = (one.reshape(count, count) for one in told)
        return Cells(index=dict(sides.index), mean=mean, sd=sd)


def known_classes(source: Source, profiles: Mapping[str, ProfileRecord]) -> list[ClassProfile]:
    """The classes as a decision sees them, in the order of the source."""
    snapshot = Snapshot(version=0, taken_at=0.0, profiles=_by_key(profiles))
    found = class_profiles(snapshot, source.name)
    by_name = {name.partition("/")[2]: one for name, one in found.items()}
    return [by_name[name] for name in source.classes]


def admissions(
    source: Source,
    model: LearnedModel,
    classes: Sequence[ClassProfile],
    asked: Sequence[int],
    max_slowdown: float,
) -> list[tuple[bool, bool]]:
    """Admitted without a trial, and violated, for each pair asked about."""
    chosen = []
    for pair in asked:
        left, right, slow_left, slow_right = source.pairs[pair]
        tenants = [
            Tenant(name=str(place), percent=100, profile=classes[one], max_slowdown=max_slowdown)
            for place, one in enumerate((left, right))
        ]
        found = margin(tenants, model.forecast(tenants), model.thresholds)
        chosen.append((found.passes, max(slow_left, slow_right) > max_slowdown))
    return chosen


def baseline(
    source: Source,
    observed: Sequence[int],
    asked: Sequence[int],
    max_slowdown: float,
    risk: Risk,
) -> list[tuple[bool, bool]]:
    """What the sum of utilisations admits, its limit certified on the same observed pairs."""
    use = _use(source, observed)
    sums = [use[left] + use[right] for left, right, _, _ in source.pairs]
    low, high = min(sums), max(sums)
    margins = [GRID[0] * (high - one) / max(high - low, 1e-9) for one in sums]
    violated = [max(one[2:]) > max_slowdown for one in source.pairs]
    scored = [
        Scored(
            z=margins[pair],
            violated=violated[pair],
            group=Group.KNOWN,
            band=band_of(max_slowdown),
        )
        for pair in observed
    ]
    least = fixed_sequence(scored, eps=risk.eps, confidence=risk.confidence).value
    return [(margins[pair] >= least, violated[pair]) for pair in asked]


def _use(source: Source, observed: Sequence[int]) -> list[float]:
    """Part of the time that each class keeps the device busy.

    Where it was not measured: half the slowdown beside itself, else the mean of those.
    """
    alike = {
        left: min(1.0, slowdown / 2)
        for left, right, slowdown, _ in (source.pairs[pair] for pair in observed)
        if left == right
    }
    middle = float(np.mean(list(alike.values()))) if alike else 1.0
    return [
        busy[0] if busy is not None else alike.get(number, middle)
        for number, busy in enumerate(source.busy)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One kind of replay.

    Attributes:
        source: Classes and pairs.
        observed: Pairs that are observed; the others are asked about.
        families: Leave pairs of whole families out, not pairs of classes.
        max_slowdown: Objective of every tenant.
    """

    source: Source
    observed: int
    families: bool
    max_slowdown: float

    @property
    def name(self) -> str:
        """Source, what never met before it is asked about, and pairs observed."""
        return f"{self.source.name}_{'models' if self.families else 'classes'}_{self.observed}"


def split_of(play: Play, seed: int) -> tuple[list[int], list[int]]:
    """Pairs that are observed and pairs that are asked about, drawn at random."""
    random = np.random.default_rng(seed)
    source = play.source
    blocks: dict[tuple[str, ...], list[int]] = {}
    for number, (left, right, _, _) in enumerate(source.pairs):
        sides = (
            (left, right) if not play.families else (source.families[left], source.families[right])
        )
        blocks.setdefault(tuple(sorted(map(str, sides))), []).append(number)
    order = [blocks[key] for key in sorted(blocks)]
    observed: list[int] = []
    asked: list[int] = []
    for place in random.permutation(len(order)):
        (observed if len(observed) < play.observed else asked).extend(order[place])
    return observed, asked


def replay(
    play: Play, seed: int, *, windows: int = WINDOWS
) -> tuple[list[int], dict[float, tuple[Chosen, Chosen]]]:
    """One split: what the operator would admit, and what the baseline would, by risk budget.

    Returns:
        The pairs that were asked about, and what became of them.

    Args:
        play: What is replayed.
        seed: Draws the split and the noise of the windows.
        windows: Windows of every observed pair.
    """
    observed, asked = split_of(play, seed)
    told = observations(
        play.source,
        observed,
        windows=windows,
        max_slowdown=play.max_slowdown,
        random=np.random.default_rng(seed),
    )
    profiles = profiles_of(list(told))
    classes = known_classes(play.source, profiles)
    found: dict[float, tuple[Chosen, Chosen]] = {}
    model = fitted(play.source, profiles, Risk(eps=EPSILONS[0]))
    rows = Rows.of(model, profiles)
    cells = rows.whole_cells()
    for eps in EPSILONS:
        risk = Risk(eps=eps)
        model = replace(rows.judged_for(risk), cells=cells)
        ours = admissions(play.source, model, classes, asked, play.max_slowdown)
        found[eps] = ours, baseline(play.source, observed, asked, play.max_slowdown, risk)
    return asked, found
