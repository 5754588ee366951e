# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs several policies on one trace, from textual options to outcomes.

Reads files; prints and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.allocation.round_records import RoundSettings
from ullage.scheduling.timeslicing.problem import tenant_views
from ullage_simulate import from_cluster, readers, readers_sia, synthetic
from ullage_simulate.decided import resume, run_decided
from ullage_simulate.events import TraceSettings, run
from ullage_simulate.failures import FailureLaw
from ullage_simulate.fleets import parsed_fleet, parsed_prices
from ullage_simulate.founding import objective_of
from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.policies import AGNOSTIC_LAS, SimulatedPolicy, chosen
from ullage_simulate.progress import Follow, Tell
from ullage_simulate.reading import ReadingOptions
from ullage_simulate.side_by_side import run_side_by_side
from ullage_simulate.speeds import SpeedTable, built_in, read_speeds
from ullage_simulate.trace import WHOLE, Fleet, JobTrace, JobTraceError, fitted, in_parts
from ullage_simulate.work import Costs

PUBLISHED: Final = "gavel"
SYNTHETIC: Final = "synthetic"
FAST: Final = "fast"
DECIDE: Final = "decide"
MANY_JOBS: Final = 5_000
"""Jobs above which policies run in parallel: starting a process costs as much as some hundred."""
_SYNTHETIC_JOBS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """Options of a comparison.

    Attributes:
        trace: A built-in name or a path.
        form: Format of a file.
        select: COLUMN=VALUE each.
        jobs: The first jobs only, or the number of a synthetic trace; 0 = all.
        load: Of a synthetic trace: requested fraction of the cluster.
        length: Of a synthetic trace: factor of its durations.
        checkpoint_s: Seconds between checkpoints; 0 = only when asked to stop.
        failures_h: Mean hours between failures of a device; 0 = none.
        snapshot: A live cluster instead of a trace.
        rules: A SchedulingPolicy with the rules; ``None`` = those of the snapshot, or the defaults.
    """

    trace: str = PUBLISHED
    form: str = "auto"
    speeds: str = ""
    select: Sequence[str] = ()
    cluster: str = "v100=8,p100=16,k80=24"
    prices: Sequence[str] = ()
    policies: Sequence[str] = ()
    against: Sequence[str] = ()
    """Policies to compare with; empty = all baselines."""
    rules: PolicyRecord | None = None
    mode: str = FAST
    seed: int = 0
    jobs: int = 0
    load: float = 0.7
    length: float = 1.0
    restart_s: float = 0.0
    checkpoint_s: float = 0.0
    failures_h: float = 0.0
    repair_s: float = 1800.0
    round_s: float | None = None
    packing: bool = False
    snapshot: Snapshot | None = None


@dataclass(slots=True)
class PolicyComparison:
    """A comparison and its outcomes."""

    trace: JobTrace
    fleet: Fleet
    settings: TraceSettings
    mode: str
    outcomes: list[PolicyOutcome] = field(default_factory=list)


def compare(asked: ComparisonRequest, follow: Follow) -> PolicyComparison:
    """Run every policy, baselines first.

    Raises:
        ValueError: the request is invalid; the text has the correction.
    """
    if asked.mode not in (FAST, DECIDE):
        raise JobTraceError(f"--mode {asked.mode}: there are {FAST} and {DECIDE}")
    if asked.mode == DECIDE and asked.packing and asked.snapshot is not None:
        raise JobTraceError("--packing: jobs of a cluster say so themselves (sharing.allowPacking)")
    read = follow("reading", 1)
    table = _table(asked)
    rules = _rules(asked)
    settings = _settings(asked, rules)
    trace, fleet = _subject(asked, table, settings.rounds.round_s)
    read(1)
    _refuse_parts(asked, trace)
    _refuse_quota(asked, rules)
    if asked.packing:
        settings = replace(settings, pairs=table.pairs(tuple(fleet.devices)))
    comparison = PolicyComparison(trace=trace, fleet=fleet, settings=settings, mode=asked.mode)
    wanted = asked.policies or ((rules.objective,) if asked.rules else ("las",))
    policies = [policy for policy in chosen(wanted, asked.against) if _runs(policy, asked)]
    if asked.mode == FAST and len(trace.jobs) >= MANY_JOBS and len(policies) > 1:
        names = [policy.name for policy in policies]
        tells = {name: follow(name, len(trace.jobs)) for name in names}
        comparison.outcomes += run_side_by_side(names, trace, fleet, settings, tells)
        return comparison
    for policy in policies:
        tell = follow(policy.name, len(trace.jobs))
        comparison.outcomes.append(_run(asked, comparison, policy, rules, tell))
    return comparison


def _refuse_parts(asked: ComparisonRequest, trace: JobTrace) -> None:
    """Reject options that the fast mode lacks for jobs with parts of devices.

    Raises:
        TraceError: such an option is set.
    """
    if asked.mode == FAST and any(job.milli < WHOLE for job in trace.jobs):
        for option, wanted in (("--packing", asked.packing), ("--failures", asked.failures_h > 0)):
            if wanted:
                raise JobTraceError(
                    f"{option}: jobs of {trace.name} hold parts of devices, which the fast mode "
                    "counts and does not place: leave it out, or use --mode decide"
                )


def _refuse_quota(asked: ComparisonRequest, rules: PolicyRecord) -> None:
    """Reject tenants with quota, which the fast mode does not support.

    Raises:
        TraceError: a tenant has quota.
    """
    named = [tenant.name for tenant in rules.tenants if tenant.quota]
    if asked.mode == FAST and named:
        raise JobTraceError(
            f"spec.tenants: {named[0]} has a quota, which the fast mode does not count: use --mode"
            " decide, or --policy-file with a policy without it"
        )


def to_json(comparison: PolicyComparison, *, jobs: bool) -> str:
    """Output for scripts: trace, cluster, figures of every policy, and optionally jobs."""
    body = {
        "trace": comparison.trace.name,
        "jobs": len(comparison.trace.jobs),
        "notes": list(comparison.trace.notes),
        "cluster": dict(comparison.fleet.devices),
        "prices": dict(comparison.fleet.prices),
        "mode": comparison.mode,
        "seed": comparison.settings.seed,
        "restart_s": comparison.settings.costs.restart_s,
        "policies": {
            outcome.policy: {
                **outcome.figures(),
                **(
                    {"each": [{**asdict(job), "jct_s": job.jct_s} for job in outcome.jobs]}
                    if jobs
                    else {}
                ),
            }
            for outcome in comparison.outcomes
        },
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def _rules(asked: ComparisonRequest) -> PolicyRecord:
    """A file's rules, else those of the live cluster, else the operator's defaults."""
    if asked.rules is not None:
        return asked.rules
    return PolicyRecord() if asked.snapshot is None else asked.snapshot.policy


def _settings(asked: ComparisonRequest, rules: PolicyRecord) -> TraceSettings:
    round_s = float(rules.round_seconds) if asked.round_s is None else asked.round_s
    return TraceSettings(
        seed=asked.seed,
        rounds=RoundSettings(round_s=round_s, gang_skip_limit=max(1, rules.gang_skip_limit)),
        tenants=tenant_views(rules),
        min_service=rules.min_service_percent / 100,
        costs=Costs(restart_s=asked.restart_s, every_s=asked.checkpoint_s),
        failures=FailureLaw(mtbf_h=asked.failures_h, repair_s=asked.repair_s),
    )


def _table(asked: ComparisonRequest) -> SpeedTable:
    if not asked.speeds:
        return built_in()
    path = Path(asked.speeds)
    if readers_sia.holds_step_times(path):
        return readers_sia.read_step_times(path)
    return read_speeds(path)


def _subject(asked: ComparisonRequest, table: SpeedTable, round_s: float) -> tuple[JobTrace, Fleet]:
    """The jobs and the cluster: from a snapshot, a built-in trace, or a file."""
    prices = parsed_prices(asked.prices)
    if asked.snapshot is not None:
        fleet = from_cluster.fleet_of(asked.snapshot, prices)
        trace = from_cluster.trace_of(asked.snapshot, fleet, round_s)
    else:
        fleet = parsed_fleet(asked.cluster, prices, per_node=8)
        trace = _trace(asked, fleet, table)
    return fitted(trace.first(asked.jobs), fleet), fleet


def _trace(asked: ComparisonRequest, fleet: Fleet, table: SpeedTable) -> JobTrace:
    if asked.trace == PUBLISHED:
        return readers.published()
    if asked.trace == SYNTHETIC:
        gap_s = synthetic.gap_for(asked.load, fleet, table, scale=asked.length)
        count = asked.jobs or _SYNTHETIC_JOBS
        return synthetic.generate(count, gap_s, table, seed=asked.seed, scale=asked.length)
    try:
        form = readers.Format(asked.form)
    except ValueError as error:
        raise JobTraceError(f"--format: there are {', '.join(readers.Format)}") from error
    strange = [text for text in asked.select if "=" not in text]
    if strange:
        raise JobTraceError(f"--select {strange[0]!r}: write COLUMN=VALUE")
    select = dict(text.split("=", 1) for text in asked.select)
    reading = ReadingOptions(
        table=table, seed=asked.seed, select=select, types=tuple(fleet.devices)
    )
    return readers.read_trace(Path(asked.trace), form, reading)


def _runs(policy: SimulatedPolicy, asked: ComparisonRequest) -> bool:
    """Under ``decide``, omit a baseline that no SchedulingPolicy can express."""
    if asked.mode == FAST:
        return True
    try:
        objective_of(policy)
    except JobTraceError:
        if not policy.baseline or asked.against:
            raise
        return False
    return asked.snapshot is None or policy is not AGNOSTIC_LAS


def _run(
    asked: ComparisonRequest,
    comparison: PolicyComparison,
    policy: SimulatedPolicy,
    rules: PolicyRecord,
    tell: Tell,
) -> PolicyOutcome:
    trace, fleet, settings = comparison.trace, comparison.fleet, comparison.settings
    if asked.mode == FAST:
        return run(*in_parts(trace, fleet), policy, settings, tell)
    if asked.snapshot is not None:
        live = replace(asked.snapshot, policy=rules)
        return resume(live, trace, fleet, policy, settings, tell)
    return run_decided(trace, fleet, policy, settings, tell, table=_table(asked), rules=rules)
