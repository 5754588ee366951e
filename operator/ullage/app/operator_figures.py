# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Collects the metrics of one replica at scrape time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Final

from ullage.api.reasons import ConditionType
from ullage.app.fit_schedule import FitState
from ullage.app.learner import Learner
from ullage.app.outcomes import Outcomes
from ullage.app.replica import Replica
from ullage.app.term import Term
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Rung
from ullage.kube.reflector import Reflector
from ullage.metrics.collector import OperatorFigures, StreamFigures
from ullage.metrics.cost import CostFigures, CostSums
from ullage.metrics.devices import DeviceFigures, device_figures
from ullage.metrics.efficiency import EfficiencyFigures, EfficiencySums
from ullage.metrics.inventory import InventoryFigures, inventory_figures
from ullage.metrics.pools import PoolFigures, pool_figures
from ullage.metrics.quota import QuotaFigures, quota_figures
from ullage.metrics.ranks import RankFigures, rank_figures
from ullage.metrics.scaling import ScalingFigures, scaling_figures
from ullage.metrics.sharing import ModelFigures, SharingFigures
from ullage.metrics.spending import SpendFigures, SpendSums
from ullage.metrics.suggestions import SuggestionFigures
from ullage.metrics.tenants import TenantLabels
from ullage.metrics.tiers import TierFigures, TierSums
from ullage.metrics.traces import TraceFigures
from ullage.metrics.tuning import TuningFigures, tuning_figures
from ullage.metrics.turns import TurnFigures, turn_figures
from ullage.scheduling.model.phases import Phase

_RUNGS: Final = tuple(Rung)
_SHARING: Final = frozenset(part.name for part in fields(SharingFigures))
"""A counter of ``Outcomes`` is the figure of its name."""


class ReplicaFigures:
    """Reads the live objects; keeps the sums that only grow."""

    def __init__(
        self,
        replica: Replica,
        *,
        term: Callable[[], Term],
        loop_lag_s: Callable[[], float],
        suggestions: Callable[[], SuggestionFigures],
        traces: Callable[[], TraceFigures],
    ) -> None:
        """``term`` returns the present leadership, or the prepared one."""
        self._replica = replica
        self._term = term
        self._loop_lag_s = loop_lag_s
        self._suggestions = suggestions
        self._traces = traces
        self._parties = TenantLabels()
        currency = replica.settings.price.currency
        self._costs = CostSums(began=replica.clock.now(), currency=currency, parties=self._parties)
        self._spends = SpendSums(currency=currency, parties=self._parties)
        self._tiers = TierSums()
        self._efficiency = EfficiencySums(began=replica.clock.now())

    def __call__(self) -> OperatorFigures:
        """All current figures."""
        replica, counters = self._replica, self._replica.counters
        guard, aside = counters.guard, replica.solver.aside
        stats, now = counters.loop, replica.clock.now()
        snapshot, term = replica.state.freeze(now), self._term()
        self._parties.policy = snapshot.policy
        workloads = list(snapshot.workloads.values())
        plan = term.loop.last_plan
        waiting = [w.status.decision for w in workloads if w.status.phase == Phase.PENDING]
        return OperatorFigures(
            is_leader=replica.lease.held,
            epoch=replica.lease.epoch,
            loop_lag_s=self._loop_lag_s(),
            streams=_streams(replica.reflectors),
            decision_seconds=stats.seconds,
            timeouts=stats.failed["SolverTimeout"],
            crashes=stats.failed["SolverCrashed"],
            set_aside=aside.in_force(),
            faults=aside.faults,
            pokes=replica.trigger.pokes,
            skipped=stats.skipped,
            failed=stats.failed,
            decision_age_s=replica.decision_age_s(),
            actions=stats.actions,
            writes=counters.writer.writes,
            task_failures=replica.supervisor.failures,
            queue_depth=counters.writer.queue_depth,
            fenced=counters.writer.fenced,
            assumed=replica.state.assumed,
            assume_expired=stats.expired,
            projection_errors=replica.state.projection_errors,
            foreign_pods=len(replica.state.foreign_pods()),
            workloads=Counter((w.kind.value, w.status.phase or "Pending") for w in workloads),
            waiting=Counter(decision.reason.value for decision in waiting if decision),
            requeues=plan.requeues if plan is not None else {},
            sharing=sharing_figures(
                counters.outcomes,
                replica.learner,
                profiles=snapshot.profiles.values(),
                unusable=plan.dropped if plan is not None else {},
            ),
            cost=guard("cost", lambda: self._costs.figures(workloads, now), CostFigures()),
            efficiency=guard(
                "efficiency", lambda: self._efficiency.figures(snapshot, now), EfficiencyFigures()
            ),
            spend=guard("spend", lambda: self._spends.figures(workloads), SpendFigures()),
            scaling=guard(
                "scaling", lambda: scaling_figures(snapshot.workloads.values()), ScalingFigures()
            ),
            tiers=guard("tiers", lambda: self._tiers.figures(snapshot.leads), TierFigures()),
            turns=guard("turns", lambda: self._turns(snapshot, workloads), TurnFigures()),
            inventory=guard("inventory", lambda: inventory_figures(snapshot), InventoryFigures()),
            ranks=guard("ranks", lambda: rank_figures(snapshot), RankFigures()),
            quota=guard("quota", lambda: quota_figures(snapshot), QuotaFigures()),
            suggestions=guard("suggestions", self._suggestions, SuggestionFigures()),
            traces=guard("traces", self._traces, TraceFigures()),
            tuning=guard(
                "tuning",
                lambda: tuning_figures(replica.state.tuning_jobs().values()),
                TuningFigures(),
            ),
            pools=guard(
                "pools",
                lambda: pool_figures(
                    snapshot.pools.values(),
                    dict(counters.price_answers),
                    replica.pool_watch.failures,
                    replica.settings.price.currency,
                ),
                PoolFigures(),
            ),
            devices=guard(
                "devices",
                lambda: device_figures(snapshot, counters.outcomes.speed_errors),
                DeviceFigures(),
            ),
        )

    def _turns(self, snapshot: Snapshot, workloads: Sequence[WorkloadRecord]) -> TurnFigures:
        stats = self._replica.counters.loop
        return turn_figures(
            workloads,
            snapshot.taken_at,
            self._parties,
            round_s=float(snapshot.policy.round_seconds),
            preemptions=stats.preemptions,
            divisions=stats.divisions,
        )


def _streams(reflectors: Sequence[Reflector]) -> StreamFigures:
    return StreamFigures(
        age_s={reflector.stream.name: reflector.last_event_age_s() for reflector in reflectors},
        objects={reflector.stream.name: reflector.objects for reflector in reflectors},
        synced={reflector.stream.name: reflector.synced for reflector in reflectors},
        relists={reflector.stream.name: reflector.relists_total for reflector in reflectors},
        drift={reflector.stream.name: reflector.resync_drift_total for reflector in reflectors},
        errors={reflector.stream.name: reflector.errors_total for reflector in reflectors},
    )


def sharing_figures(
    outcomes: Outcomes,
    learner: Learner,
    *,
    profiles: Collection[ProfileRecord],
    unusable: Mapping[str, int],
) -> SharingFigures:
    """The current figures."""
    stats, error = learner.stats, outcomes.error()
    wild = {"NotBelieved": sum(sum(rows.values()) for rows in learner.refused.values())}
    counted = {name: value for name, value in vars(outcomes).items() if name in _SHARING}
    return SharingFigures(
        **counted,
        coverage=outcomes.coverage(),
        error={} if error is None else {"slowdown": error},
        unusable={reason: count for reason, count in {**unusable, **wild}.items() if count},
        profiles=len(profiles),
        isolated=sum(
            profile.status.condition(ConditionType.ISOLATED) is not None for profile in profiles
        ),
        models=_models(learner.courses),
        lessons={
            "done": stats.lessons,
            "late": stats.late,
            "crashed": stats.crashes,
            "refused": stats.refused,
        },
        learning_seconds=stats.seconds,
    )


def _models(courses: Mapping[str, FitState]) -> ModelFigures:
    models = {name: course.model for name, course in courses.items()}
    return ModelFigures(
        rung={
            name: max(map(_RUNGS.index, model.rungs.values()), default=0) if model else 0
            for name, model in models.items()
        },
        rows={name: model.rows if model else 0 for name, model in models.items()},
        version={name: model.version if model else 0 for name, model in models.items()},
        failing={name: bool(course.error) for name, course in courses.items()},
    )
