# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages and Events about turns. Nothing is decided here."""

from __future__ import annotations

from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.profile import Source
from ullage.cluster.records.status import DroppedDeadline, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.timeslicing.contenders import NEUTRAL, Arena
from ullage.scheduling.timeslicing.division import Division
from ullage.scheduling.timeslicing.plan import Turnout
from ullage.scheduling.timeslicing.problem import Goal

_MOST_PAIRS: Final = 2
_GUESSED: Final = (NEUTRAL, Source.ESTIMATED.value)
"""Sources of speeds that were not measured or declared for the job itself."""


def turn_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> tuple[Emit, ...]:
    """Events for a job whose speeds are estimates from now on, or whose deadline is dropped."""
    before, now = workload.status.allocation, status.allocation
    if now is None:
        return ()
    news: list[tuple[Reason, str]] = []
    if now.source in _GUESSED and (before is None or before.source not in _GUESSED):
        text = "its speeds are estimated from other classes of work until it ran itself"
        if now.source == NEUTRAL:
            text = (
                "its speed is not known on every accelerator type: types that lack one count as"
                " equal until it ran there; declare stepsPerSecond in a WorkloadProfile to be"
                " divided rightly"
            )
        news.append((Reason.ESTIMATE_USED, text))
    late = before.dropped if before is not None else None
    if now.dropped is not None and (late is None or late.cause != now.dropped.cause):
        news.append((Reason.SLO_INFEASIBLE, dropped_text(now.dropped)))
    return tuple(
        Emit(
            target=workload.ref,
            warning=reason is Reason.SLO_INFEASIBLE,
            epoch=epoch,
            reason=reason,
            text=text,
        )
        for reason, text in news
    )


def turn_text(arena: Arena, division: Division, turnout: Turnout, uid: str) -> str:
    """Message about a job that waits for its turn."""
    runner = arena.runners[uid]
    parts = division.fractions[uid]
    dropped = division.dropped.get(uid)
    late = f"; {dropped_text(dropped)}" if dropped is not None else ""
    if not parts:
        return (
            "the objective promises it no time while others want the devices; it runs when some"
            f" are idle{_scarce(division)}{late}"
        )
    shares = ", ".join(f"{float(part):.0%} of the time on {kind}" for kind, part in parts)
    shares += _company(arena, division, uid)
    best = max(parts, key=lambda part: (turnout.owed.get((uid, part[0]), 0.0), float(part[1])))[0]
    owed = turnout.owed.get((uid, best), 0.0)
    balance = f"is owed {owed:.0f} s" if owed >= 0 else f"had {-owed:.0f} s more than that"
    count, names = turnout.ahead(uid, best)
    ahead = "no one is ahead of it"
    if count:
        who = ", ".join(arena.runners[name].name for name in names)
        more = f" and {count - len(names)} more" if count > len(names) else ""
        ahead = f"{count} ahead of it there: {who}{more}"
    books = runner.workload.status.allocation
    skipped = "; smaller jobs pass it by" if books is not None and books.skipped_since else ""
    guessed = "; its speeds are estimates" if runner.source in _GUESSED else ""
    return (
        f"waits for its turn: promised {shares}; {balance} on {best}, {ahead}"
        f"{_scarce(division)}{skipped}{guessed}{late}"
    )


def _company(arena: Arena, division: Division, uid: str) -> str:
    """The partners beside which the job is promised time, the most first."""
    pairs = sorted(division.partners.get(uid, ()), key=lambda pair: (-float(pair[2]), pair))
    if not pairs:
        return ""
    partners = ", ".join(
        f"{float(part):.0%} beside {arena.runners[other].name} on {kind}"
        for other, kind, part in pairs[:_MOST_PAIRS]
    )
    more = f" and {len(pairs) - _MOST_PAIRS} more" if len(pairs) > _MOST_PAIRS else ""
    return f" ({partners}{more})"


def leaves_text(arena: Arena, uid: str, kind: str, partner: str) -> str:
    """Message about the restart of a running job on a better type or with another share."""
    runner = arena.runners[uid]
    goes_on = "resumes from its checkpoint"
    if kind != runner.holds:
        return f"migrates to {kind} (higher value); {goes_on}"
    both = arena.pairing.together(uid, partner, kind) if partner else None
    if both is None:
        return f"now has a whole {kind}; {goes_on}"
    speeds = [
        f"{arena.runners[name].speeds.get(kind, 0.0) / slowdown:.3g}"
        for name, slowdown in zip((uid, partner), both.slowdowns, strict=True)
    ]
    return (
        f"shares a {kind} with {arena.runners[partner].name} from now on, {both.percents[0]} % of"
        f" it, at {speeds[0]} steps/s beside {speeds[1]} (predicted); {goes_on}"
    )


def dropped_text(dropped: DroppedDeadline) -> str:
    """Message about a deadline that is not kept, with the speeds behind it."""
    speeds = f"it needs {dropped.needed} steps/s, at most {dropped.best} can be had"
    match dropped.cause:
        case "Passed":
            return "its deadline has passed"
        case "WorkUnknown":
            return (
                "its deadline is not looked at: nothing says how much there is to do; state"
                " spec.work.steps or spec.cost.estimatedWork"
            )
        case "TooSlow":
            return f"its deadline cannot be kept: {speeds}, on its fastest accelerator all the time"
    rough = (
        "those that lacked most were dropped, which need not be the fewest"
        if dropped.approximate
        else "the fewest were dropped, and this is one"
    )
    return (
        f"its deadline cannot be kept: it needs {dropped.needed} of {dropped.best} steps/s, and"
        f" other deadlines need the same devices; {rough}"
    )


def unpriced_text(goal: Goal) -> str:
    """Message for a division by another objective than that of the policy."""
    return (
        f"{goal.asked} needs a price above 0 for {', '.join(goal.unpriced)}: set spec.pricePerHour"
        f" of its DeviceProfile, or a CapacityPool; until then time is divided by {goal.objective}"
    )


def _scarce(division: Division) -> str:
    """The type whose devices bind most, by what one more of them would be worth."""
    record = division.record
    if record is None or not record.prices:
        return ""
    kind, price = max(record.prices, key=lambda price: (float(price[1]), price[0]))
    return f"; scarcest is {kind} (one more adds {float(price):.3g} to the objective)"
