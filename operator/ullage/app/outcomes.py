# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts decisions and their outcomes for the metrics.

Every figure follows from a decision's snapshot and its actions. A window is compared with the model
at its arrival, before it is learned. Bounded; it never decides anything.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.api.schedulingpolicy import Knowledge
from ullage.api.slices import SliceKey
from ullage.app.times import DECISION_GAP_MOST_S
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import ProfileRecord, StepRow
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.ladder import NOMINAL_Z
from ullage.engines.admission.model import Models
from ullage.engines.admission.records import ClassProfile, Group, Tenant
from ullage.metrics.devices import SpeedErrors
from ullage.metrics.histograms import (
    admission_seconds,
    observed_slowdown,
    predicted_slowdown,
    wait_seconds,
)
from ullage.metrics.tenants import TenantLabels
from ullage.scheduling.model.plan import Action, Emit, SetProfile, SetStatus, TellPod
from ullage.scheduling.prediction.knowledge import partner_of
from ullage.scheduling.prediction.rows import class_profile
from ullage.scheduling.status.workload_status import ENFORCED

WINDOW: Final = 500
"""Recent windows of a group over which coverage and error are computed."""
KEPT: Final = "kept"
BROKEN: Final = "broken"


class Outcomes:
    """Accumulates over the life of this process, as counters do; bounded.

    Keys are our own words, the types of devices that nodes report, namespaces, and a bounded number
    of tenants.
    """

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._parties = TenantLabels()
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        self.admission_seconds = admission_seconds()
        self.predicted = predicted_slowdown()
        self.observed = observed_slowdown()
        self.violations: Counter[str] = Counter()
        self.windows: Counter[tuple[str, str]] = Counter()
        self.wait_seconds = wait_seconds()
        self.probation_seconds = 0.0
        self.class_faults = 0
        self.speed_errors = SpeedErrors()
        self._recent: dict[Group, deque[tuple[bool, float]]] = {}
        self._nodes: Mapping[str, GPUNodeRecord] = {}
        self._judged: dict[str, dict[SliceKey, tuple[int, int]]] = {}
        self._tried: dict[str, int] = {}
        self._last: float | None = None

    def look(self, snapshot: Snapshot, actions: Sequence[Action], seconds: float) -> None:
        """Record one decision, which took ``seconds``."""
        self._parties.policy = snapshot.policy
        self._count_decisions(snapshot, actions, seconds)
        for action in actions:
            if isinstance(action, SetProfile):
                self._compare(snapshot, action)
        self.speed_errors.look(snapshot, actions)
        self._watch(snapshot)

    def look_away(self) -> None:
        """Discard observations: another leader may count from now on."""
        self._nodes, self._judged, self._tried, self._last = {}, {}, {}, None

    def coverage(self) -> dict[str, float]:
        """Part of the recent windows below the nominal 90 % bound, by group."""
        return {
            group.value: sum(inside for inside, _ in recent) / len(recent)
            for group, recent in self._recent.items()
        }

    def error(self) -> float | None:
        """Mean relative error of the recent windows, ``None`` = there were none."""
        errors = [error for recent in self._recent.values() for _, error in recent]
        return math.fsum(errors) / len(errors) if errors else None

    def _count_decisions(
        self, snapshot: Snapshot, actions: Sequence[Action], seconds: float
    ) -> None:
        tried = {
            emit.target.uid
            for emit in actions
            if isinstance(emit, Emit) and emit.reason is Reason.PROBATION_STARTED
        }
        decided = 0
        for uid, action in _statuses(actions).items():
            workload = snapshot.workloads.get(uid)
            if workload is None:
                continue
            self._count_wait(snapshot.taken_at, workload, action.status)
            before, after = workload.status.decision, action.status.decision
            same = before is not None and after is not None and (
                (before.chosen, before.reason) == (after.chosen, after.reason)
            )  # fmt: skip
            if after is None or same:
                continue
            word = "refused"
            if after.chosen:
                word = "probation" if action.owner.uid in tried else "admitted"
            group = action.status.sharing.group if action.status.sharing else ""
            self.decisions[word, after.reason.value, group] += 1
            decided += 1
        for _ in range(decided):
            self.admission_seconds.observe(seconds / decided)

    def _count_wait(self, now: float, workload: WorkloadRecord, after: WorkloadStatus) -> None:
        before = workload.status.condition(ConditionType.ADMITTED)
        admitted = after.condition(ConditionType.ADMITTED)
        if admitted is None or admitted.status != "True":
            return
        if before is not None and before.status == "True":
            return
        since = workload.created if before is None else before.since
        reason = Reason.PLACED.value if before is None else before.reason
        tenant = self._parties.label(workload)
        self.wait_seconds.labels(tenant, reason).observe(max(0.0, now - since))

    # -- predictions and observations ------------------------------------------------------------

    def _compare(self, snapshot: Snapshot, action: SetProfile) -> None:
        profile = snapshot.profiles.get((action.target.namespace, action.target.name))
        if profile is None:
            return
        self.class_faults += max(0, action.status.faults - profile.status.faults)
        earlier = {row.id for row in profile.rows}
        models = Models(by_accelerator=snapshot.models)
        for row in action.status.step_time:
            if row.id not in earlier and row.partners and row.slowdown:
                tenants = _tenants(profile, row, snapshot.policy.knowledge)
                self._hold_against(models, tenants, row, row.slowdown)

    def _hold_against(
        self, models: Models, tenants: Sequence[Tenant], row: StepRow, seen: float
    ) -> None:
        try:
            forecast = models.forecast(row.accelerator, tenants)
        except ValueError:
            return  # a declared fingerprint without a prediction; the learner logs it
        mean, sd = forecast.mean[0], forecast.sd[0]
        predicted = math.exp(mean)
        self.predicted.labels(row.accelerator).observe(predicted)
        self.observed.labels(row.accelerator).observe(seen)
        recent = self._recent.setdefault(forecast.group, deque(maxlen=WINDOW))
        inside = math.log(seen) <= mean + NOMINAL_Z * sd
        recent.append((inside, abs(predicted - seen) / seen))

    # -- what nodes report -----------------------------------------------------------------------

    def _watch(self, snapshot: Snapshot) -> None:
        """Count windows above an objective since the last decision, and the time of trials."""
        if self._last is not None:
            gap_s = min(max(0.0, snapshot.taken_at - self._last), DECISION_GAP_MOST_S)
            self.probation_seconds += gap_s * sum(self._tried.values())
        self._last = snapshot.taken_at
        if snapshot.gpu_nodes is self._nodes:
            return
        for name in self._nodes.keys() - snapshot.gpu_nodes.keys():
            self._judged.pop(name, None)
            self._tried.pop(name, None)
        for name, node in snapshot.gpu_nodes.items():
            if self._nodes.get(name) is not node:
                self._watch_node(name, node)
        self._nodes = snapshot.gpu_nodes

    def _watch_node(self, name: str, node: GPUNodeRecord) -> None:
        trials = {wanted.key for wanted in node.desired if wanted.probation}
        namespaces = {wanted.key: wanted.pod_namespace for wanted in node.desired}
        # counts of a node from before its first observation by this process are ignored
        first = name not in self._judged
        before = self._judged.get(name, {})
        for seen in () if first else node.observed:
            judged, broken = before.get(seen.key, (0, 0))
            more = max(0, seen.violations - broken)
            if more:
                cause = "probation" if trials else "neighbours"
                if seen.reason == Reason.SELF_VIOLATING:
                    cause = "load"
                self.violations[cause] += more
            namespace = namespaces.get(seen.key)
            if namespace is not None and seen.windows:
                self.windows[namespace, KEPT] += max(0, seen.windows - judged - more)
                self.windows[namespace, BROKEN] += more
        self._judged[name] = {seen.key: (seen.windows, seen.violations) for seen in node.observed}
        self._tried[name] = sum(
            seen.key in trials and seen.phase in ENFORCED for seen in node.observed
        )


def _statuses(actions: Sequence[Action]) -> dict[str, SetStatus]:
    """The written status of each workload, by uid; pods of one gang share one."""
    statuses: dict[str, SetStatus] = {}
    for action in actions:
        if isinstance(action, SetStatus):
            uid = action.unit if isinstance(action, TellPod) else action.owner.uid
            statuses.setdefault(uid, action)
    return statuses


def _tenants(profile: ProfileRecord, row: StepRow, knowledge: Knowledge) -> list[Tenant]:
    """Tenants of the device; the profile of a class fills gaps of the model."""
    owner = Tenant(
        name="0",
        percent=row.share,
        profile=class_profile(profile, row.accelerator, knowledge),
    )
    others = [
        Tenant(
            name=f"{place}",
            percent=other.percent,
            profile=ClassProfile(
                workload_class=partner_of(other.workload_class, profile.namespace, knowledge)
            ),
        )
        for place, other in enumerate(row.partners, start=1)
    ]
    return [owner, *others]
