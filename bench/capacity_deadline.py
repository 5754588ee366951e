# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deadlines on real spot traces: Uniform Progress beside the greedy baseline.

Every window is played with the engine's own rules in whole seconds. Starts overlap: four pools of
27 days hold some 43 windows that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.capacity_traces import DEADLINE_BATCH, Trace, of_batch
from bench.report import Figure, Row
from ullage.api.words import SpendMode
from ullage.engines.capacity.deadline import (
    DeadlineProgress,
    DeadlineVerdict,
    ProgressLine,
    greedy,
    uniform_progress,
)
from ullage.engines.capacity.records import CapacityType, CapacityWhy
from ullage_simulate.spot import play as spot_play
from ullage_simulate.spot.market import SpotMarket
from ullage_simulate.spot.play import SpotJob, restarts
from ullage_simulate.spot.rules import by_deadline

STARTS: Final = 600
SEED: Final = 1
WORK_S: Final = 48 * 3600
DEADLINE_S: Final = 60 * 3600
CHANGEOVER_S: Final = 720
LONG_CHANGEOVER_S: Final = 1800
"""Of a large job; reported without a bar."""
LIMIT: Final = 0.90
ON_DEMAND: Final = 3.06
SPOT: Final = 0.97

Rule = Callable[[ProgressLine, DeadlineProgress], DeadlineVerdict]


def _lead(line: ProgressLine, at: DeadlineProgress, *, ahead_s: int) -> int:
    """Lead of the work over the line some seconds ahead, in whole numbers; below 0 = behind."""
    return at.done_s * line.deadline_s - (at.elapsed_s + ahead_s) * line.work_s


def public_rules(line: ProgressLine, at: DeadlineProgress) -> DeadlineVerdict:
    """The decisions of the published rule set, rounding of its safety net to ticks included.

    For comparison alone: nothing is committed, and the net lets spot run on at a bare changeover.

    Args:
        line: Work and deadline.
        at: Where the job stands, changeover left included.
    """
    if at.done_s >= line.work_s:
        return DeadlineVerdict(mode=SpendMode.IDLE, reason=CapacityWhy.FINISHED)
    spot = DeadlineVerdict(mode=SpendMode.SPOT, reason=CapacityWhy.ON_SPOT)
    net = DeadlineVerdict(mode=SpendMode.ON_DEMAND, reason=CapacityWhy.SAFETY_NET)
    tick_s, left_s = line.tick_s, line.work_s - at.done_s
    ticks_left = (line.deadline_s - at.elapsed_s) // tick_s
    if -(-(left_s + line.changeover_s) // tick_s) >= ticks_left:
        runs = at.running is SpendMode.SPOT and not at.changeover_left_s
        return spot if runs else net
    if at.running is not SpendMode.SPOT and (
        -(-(left_s + 2 * line.changeover_s) // tick_s) >= ticks_left
    ):
        return net
    if at.running is SpendMode.ON_DEMAND and (
        not at.spot_available or _lead(line, at, ahead_s=2 * line.changeover_s) <= 0
    ):
        return DeadlineVerdict(mode=SpendMode.ON_DEMAND, reason=CapacityWhy.ON_DEMAND_HELD)
    if at.spot_available:
        return spot
    if _lead(line, at, ahead_s=0) < 0:
        return DeadlineVerdict(mode=SpendMode.ON_DEMAND, reason=CapacityWhy.BEHIND)
    return DeadlineVerdict(mode=SpendMode.IDLE, reason=CapacityWhy.AHEAD)


def _ours(line: ProgressLine, at: DeadlineProgress) -> DeadlineVerdict:
    return uniform_progress(line, at)


RULES: Final[Mapping[str, Rule]] = {"ours": _ours, "greedy": greedy, "public": public_rules}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How one job ended.

    Attributes:
        late_s: Seconds past the deadline; 0 = in time.
        on_demand_s: Seconds of on-demand paid for.
        spot_s: Seconds of spot paid for.
        starts: Changeovers.
    """

    late_s: int
    on_demand_s: int
    spot_s: int
    starts: int

    @property
    def cost(self) -> float:
        """Dollars."""
        return (self.on_demand_s * ON_DEMAND + self.spot_s * SPOT) / 3600


def play(rule: Rule, line: ProgressLine, up: Sequence[bool]) -> Window:
    """One job over a window of a trace; time beyond it has no spot.

    Args:
        rule: What decides.
        line: Work and deadline.
        up: Whether spot is there at each tick.
    """
    run = spot_play.play(
        _market(up, line.tick_s),
        SpotJob(
            work=float(line.work_s), speed=lambda _: 1.0, toll=restarts(float(line.changeover_s))
        ),
        by_deadline(rule, line, gang=1),
    )
    spot_s, on_demand_s = (int(seconds) for seconds in run.paid_s)
    return Window(
        late_s=max(0, int(run.elapsed_s) - line.deadline_s),
        on_demand_s=on_demand_s,
        spot_s=spot_s,
        starts=run.starts,
    )


def _market(up: Sequence[bool], tick_s: int) -> SpotMarket:
    """One pool of spot and one of on-demand; the rules look at no hazard."""
    there = np.array([[*up, False], [True] * (len(up) + 1)])
    return SpotMarket(
        names=("spot", "on-demand"),
        kinds=(CapacityType.SPOT, CapacityType.ON_DEMAND),
        up=there,
        price=np.broadcast_to([[SPOT], [ON_DEMAND]], there.shape),
        hazard=np.zeros(there.shape),
        tick_s=tick_s,
    )


def windows(trace: Trace, starts: int = STARTS) -> list[list[bool]]:
    """Windows of a trace from random starts, each long enough for the deadline."""
    length = DEADLINE_S // trace.gap_s + 1
    draw = np.random.default_rng([SEED, _number(trace)])
    return [
        (trace.up[start : start + length] > 0).tolist()
        for start in draw.integers(0, len(trace.up) - length, starts).tolist()
    ]


def measure(
    traces: Sequence[Trace], tick: Callable[[str], None], starts: int = STARTS
) -> tuple[dict[str, Figure], list[Row]]:
    """Misses, hours and savings of every rule over all pools."""
    pools = of_batch(traces, DEADLINE_BATCH)
    found: dict[str, list[Window]] = {name: [] for name in RULES}
    slow: dict[str, list[Window]] = {name: [] for name in ("ours", "greedy")}
    rows = []
    for pool in pools:
        line = ProgressLine(
            work_s=WORK_S, deadline_s=DEADLINE_S, changeover_s=CHANGEOVER_S, tick_s=pool.gap_s
        )
        drawn = windows(pool, starts)
        here = {name: [play(rule, line, one) for one in drawn] for name, rule in RULES.items()}
        for name, more in here.items():
            found[name] += more
        long = replace(line, changeover_s=LONG_CHANGEOVER_S)
        for name, ended in slow.items():
            ended += [play(RULES[name], long, one) for one in drawn]
        rows.append(
            Row(
                what=f"{pool.instance}: on-demand hours per job",
                ours=f"{_hours(here['ours']):.1f} h",
                baseline=f"{_hours(here['greedy']):.1f} h greedy",
            )
        )
        tick(f"deadline: {pool.name}, {starts} windows")
    figures = _figures(found) | _slow_figures(slow)
    return figures, [*_rows(found), _slow_row(slow), *rows]


def _figures(found: Mapping[str, Sequence[Window]]) -> dict[str, Figure]:
    ours, base = found["ours"], found["greedy"]
    return {
        "windows": len(ours),
        "misses": sum(one.late_s > 0 for one in ours),
        "greedy_misses": sum(one.late_s > 0 for one in base),
        "ondemand_hours": round(_hours(ours), 3),
        "greedy_ondemand_hours": round(_hours(base), 3),
        "ondemand_vs_greedy": round(_hours(ours) / _hours(base), 4),
        "public_rules_ondemand_hours": round(_hours(found["public"]), 3),
        "deadline_savings": round(_savings(ours), 4),
        "greedy_savings": round(_savings(base), 4),
    }


def _slow_figures(slow: Mapping[str, Sequence[Window]]) -> dict[str, Figure]:
    ours, base = slow["ours"], slow["greedy"]
    return {
        "misses_30min": sum(one.late_s > 0 for one in ours),
        "ondemand_hours_30min": round(_hours(ours), 3),
        "ondemand_vs_greedy_30min": round(_hours(ours) / _hours(base), 4),
        "deadline_savings_30min": round(_savings(ours), 4),
        "greedy_savings_30min": round(_savings(base), 4),
    }


def _slow_row(slow: Mapping[str, Sequence[Window]]) -> Row:
    ours, base = slow["ours"], slow["greedy"]
    missed = sum(one.late_s > 0 for one in ours)
    return Row(
        what="the same with a changeover of 30 min",
        ours=f"{_hours(ours):.1f} h, {_hours(ours) / _hours(base):.3f} of greedy, {missed} missed",
        baseline=f"{_hours(base):.1f} h greedy",
    )


def _rows(found: Mapping[str, Sequence[Window]]) -> list[Row]:
    ours, base = found["ours"], found["greedy"]
    return [
        Row(
            what=f"{len(ours)} windows (starts overlap), 48 h of work in 60 h: missed",
            ours=str(sum(one.late_s > 0 for one in ours)),
            baseline=f"{sum(one.late_s > 0 for one in base)} greedy",
            limit="0",
        ),
        Row(
            what="on-demand hours per job",
            ours=f"{_hours(ours):.1f} h, {_hours(ours) / _hours(base):.3f} of greedy",
            baseline=f"{_hours(base):.1f} h greedy, {_hours(found['public']):.1f} h public rules",
            limit=f"<= {LIMIT:.2f} of greedy",
        ),
        Row(
            what="saved against on-demand alone",
            ours=f"{_savings(ours):.1%}",
            baseline=f"{_savings(base):.1%} greedy",
        ),
    ]


def _hours(found: Sequence[Window]) -> float:
    return float(np.mean([one.on_demand_s for one in found])) / 3600


def _savings(found: Sequence[Window]) -> float:
    return 1 - float(np.mean([one.cost for one in found])) / (ON_DEMAND * WORK_S / 3600)


def _number(trace: Trace) -> int:
    """A seed of a trace's own that no order of files changes."""
    return int.from_bytes(trace.name.encode()[-8:], "big") % 2**32
