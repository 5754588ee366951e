# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of pods, reduced to the inputs of placement.

Pods with equal requests are one class: a device is evaluated once per class and cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ullage.api.devices import GPUMode
from ullage.api.gpurequest import LaneMemory, Share
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import Refusal, Tenant
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.pod_rules import RuledPod
from ullage.scheduling.feasibility.slices import LANE_PERCENT_MOST, has_objective, takes_turns
from ullage.scheduling.inventory.held_shares import accelerators_asked, share_asked
from ullage.scheduling.inventory.inventory import Flags
from ullage.scheduling.inventory.node_fit import amounts, is_pinned
from ullage.scheduling.inventory.reliable_machines import is_held_to, staying, terms_of
from ullage.scheduling.inventory.trust_domains import effective_domain
from ullage.scheduling.model.device_choice import BEST, NO_CHOICE, DeviceChoice
from ullage.scheduling.model.plan import Labels
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.workload_classes import SPARE, Classes, Known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Nodes that a job may be placed on, by its chosen pools.

    Attributes:
        nodes: By node of the inventory.
        names: The pools, as text.
        grows: More nodes of these pools can be bought, so that insufficient room may grow.
        stays: One of the pools is reliable. Without one, reliable members of a job in tiers may be
            on any reliable machine.
    """

    nodes: Flags
    names: str
    grows: bool
    stays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """One class of request; ``number`` is its identity within a cycle.

    ``memory_mib`` 0 = in proportion to the share. ``accelerators`` are model indices of the
    inventory.
    """

    number: int
    shape: PodShape
    mode: GPUMode
    exclusive: bool
    """It requests whole devices."""
    lonely: bool
    """No other tenant may be on its devices."""
    count: int
    min_percent: int
    max_percent: int
    memory_mib: int
    accelerators: frozenset[int] | None
    """Models allowed; ``None`` = any."""
    domain: int
    trust_domain: str
    """The name of the domain."""
    known: Known
    judged: bool
    """True when its class matters: it shares, or it has an objective."""
    percent_limit: int
    """Largest sum of shares on one device (policy)."""
    needs: tuple[tuple[str, int], ...]
    """Amounts that the pod requests of its node."""
    avoid: frozenset[int] = frozenset()
    """Devices excluded for a while, after refusals there."""
    place: Place | None = None
    """Nodes of its chosen pools; ``None`` = any."""
    uniform: bool = False
    """True when all devices of all members of its gang are of one model."""
    values: tuple[tuple[int, int], ...] = ()
    """Preference by model, percent of the best; breaks ties between places. Empty = all equal."""
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    """Models on which its own bounds would break."""
    across: int = BEST
    """Percent of its speed that its gang keeps on several nodes."""
    quota_of: int = NO_TENANT
    """Number of the tenant whose quota it counts against."""
    lane: LaneMemory | None = None
    """Its memory where it may share a lane."""
    ruled: RuledPod | None = None
    """Its rules about other pods, ports and volumes, or theirs about it; ``None`` = no rule."""

    def tenant(self, name: str, model: int, percent: int, *, probation: bool = False) -> Tenant:
        """The newcomer as input of a predictor."""
        return self.known.tenant(name, model, percent, probation=probation)

    @property
    def suspendable(self) -> bool:
        """True when its pods are suspended while they are idle and others need their memory."""
        return self.lane is not None and not self.lane.cooperative

    @property
    def contexts(self) -> int:
        """Contexts that one container opens."""
        return 1

    @property
    def barred(self) -> Mapping[int, Refusal]:
        """Models on which its objective cannot be met or evaluated, or a bound would break."""
        barred = self.known.barred
        if barred and self.exclusive:
            barred = {
                at: refusal
                for at, refusal in barred.items()
                if refusal.reason is not Reason.NEED_PROFILE
            }
        return {**barred, **self.refused} if self.refused else barred

    @property
    def unmeasured(self) -> Mapping[int, str]:
        """By model on which it must be alone for now: text of the figures to measure first."""
        return {} if self.exclusive else self.known.unmeasured


def keeps_to_one_type(workload: WorkloadRecord) -> bool:
    """True for a gang that runs on devices of one type: the slowest sets its pace."""
    several = workload.replicas > 1 or workload.gpu.count > 1 or workload.elasticity is not None
    training = workload.kind is WorkloadKind.TRAINING_JOB
    return training and several and not workload.mixed_accelerators


_Worth = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, Refusal], ...]]
"""Preference of the models by number, and the refusals of those that may not be used."""


@dataclass(slots=True)
class _RequestClasses:
    """Classes of requests, kept from cycle to cycle while their inputs do not change."""

    rests_on: tuple[object, ...] = ()
    by_key: dict[tuple[object, ...], ResourceRequest] = field(default_factory=dict)
    last: dict[str, tuple[WorkloadRecord, PodShape, ResourceRequest]] = field(default_factory=dict)
    """By uid of the workload: its last request without devices to avoid."""
    ruled: dict[tuple[int, RuledPod | None], ResourceRequest] = field(default_factory=dict)
    """By number of the class without rules."""
    shapes: dict[int, tuple[PodShape, PodShape]] = field(default_factory=dict)
    """By identity: a shape, and the one object for all equal shapes."""
    by_value: dict[PodShape, PodShape] = field(default_factory=dict)

    def next_number(self) -> int:
        """An unused class number."""
        return len(self.by_key) + len(self.ruled)

    def is_small(self, workloads: int) -> bool:
        """True when most entries are about existing workloads."""
        most = 2 * workloads + SPARE
        shapes = max(len(self.shapes), len(self.by_value))
        return max(len(self.by_key), len(self.ruled), len(self.last), shapes) < most


@dataclass(slots=True)
class RequestCache:
    """Classes of requests of the last cycle."""

    kept: _RequestClasses = field(default_factory=_RequestClasses)


@dataclass(slots=True)
class ResourceRequests:
    """Gives the class of a request; equal requests get the same object."""

    view: View
    occupancy: Occupancy
    classes: Classes
    places: Mapping[str, Place] = field(default_factory=dict)
    """By uid: nodes of jobs with chosen pools."""
    cache: RequestCache = field(default_factory=RequestCache)
    choose: Callable[[WorkloadRecord], DeviceChoice] = field(default=lambda _: NO_CHOICE)
    """Gives the device choice of a workload."""
    _kept: _RequestClasses = field(init=False)
    _steady: tuple[Labels, ...] | None = None
    """Labels of reliable machines; created at first use."""
    _choices: dict[int, tuple[DeviceChoice, _Worth]] = field(default_factory=dict)
    """By identity of a choice, which equal jobs share."""

    def __post_init__(self) -> None:
        occupancy, snapshot = self.occupancy, self.view.snapshot
        models = tuple(occupancy.inventory.models)
        rests_on = (
            models,
            occupancy.domains,
            snapshot.policy.rules(),
            self.classes.rests_on,
            dict(self.classes.spent_s),
        )
        kept = self.cache.kept
        stands = len(kept.rests_on) == len(rests_on) and all(
            before is after or before == after
            for before, after in zip(kept.rests_on, rests_on, strict=True)
        )
        # a request with chosen pools has node numbers of this cycle, so it is not kept
        if self.places or not stands or not kept.is_small(len(snapshot.workloads)):
            kept = self.cache.kept = _RequestClasses(rests_on=() if self.places else rests_on)
        self._kept = kept

    @property
    def rests_on(self) -> object:
        """An object that stays the same while the classes of the last cycle are valid."""
        return self._kept

    def of(
        self, workload: WorkloadRecord, shape: PodShape, avoid: frozenset[int] = frozenset()
    ) -> ResourceRequest:
        """The class of the request of one member of the workload."""
        kept = self._kept
        last = kept.last.get(workload.ref.uid)
        if last is not None and not avoid and last[0] is workload and last[1] is shape:
            return last[2]
        asked = shape
        share = share_asked(workload, self.view.now, self.view.snapshot.workloads)
        bounds = share is not None and workload.status.made_room is not None
        company: tuple[object, ...] = ()
        if share is not None:
            # the share and the neighbours matter only to a sharing workload
            domain = effective_domain(self.view, workload)
            company = (share.min_percent, share.max_percent, domain)
        shape = self._unpinned(workload, shape)
        place = self._place(workload, shape) if self.places else None
        choice = self.choose(workload)
        values, refused = self._by_model(choice)
        across = choice.across
        uniform = len(self.occupancy.inventory.models) > 1 and keeps_to_one_type(workload)
        quota = self.occupancy.quota
        quota_of = quota.tenants.number_of(workload) if quota is not None else NO_TENANT
        key: tuple[object, ...] = (
            id(shape),  # by_value keeps it alive
            workload.gpu.mode,
            workload.gpu.count,
            workload.gpu.memory_mib,
            self._accelerators(workload),
            workload.sharing.allow,
            id(self.classes.of(workload)) if share is not None or has_objective(workload) else 0,
            avoid,
            company,
            id(place),
            values,
            refused,
            uniform,
            across,
            quota_of,
            takes_turns(workload),
            workload.scaling is not None,
        )
        request = kept.by_key.get(key)
        if request is None:
            request = self._make(workload, shape, share, avoid)
            restricted = place is not None or quota_of != NO_TENANT
            if restricted or values or refused or uniform or across != BEST:
                request = replace(
                    request,
                    quota_of=quota_of,
                    place=place,
                    values=values,
                    refused=dict(refused),
                    uniform=uniform,
                    across=across,
                )
            kept.by_key[key] = request
        if not avoid and not bounds:  # a bound ends with time
            kept.last[workload.ref.uid] = (workload, asked, request)
        return request

    def under_rules(
        self, request: ResourceRequest, pod: PodRecord, *, settled: bool = False
    ) -> ResourceRequest:
        """The class of a request with the rules that apply to its pod.

        Args:
            request: The class without rules.
            pod: The pod.
            settled: It stays on the node that it is bound to: rules no longer apply, and its
                requests are already charged to the node.
        """
        board = self.occupancy.rules
        ruled = board.ruled(pod) if board is not None and not settled else None
        if ruled is None and not settled:
            return request
        key = request.number, ruled
        under_rules = self._kept.ruled.get(key)
        if under_rules is None:
            needs = () if settled else request.needs
            number = self._kept.next_number()
            under_rules = replace(request, number=number, ruled=ruled, needs=needs)
            self._kept.ruled[key] = under_rules
        return under_rules

    def _make(
        self,
        workload: WorkloadRecord,
        shape: PodShape,
        share: Share | None,
        avoid: frozenset[int],
    ) -> ResourceRequest:
        domain = effective_domain(self.view, workload)
        lane = takes_turns(workload)
        most = share.max_percent if share else WHOLE_PERCENT
        return ResourceRequest(
            number=self._kept.next_number(),
            shape=shape,
            mode=workload.gpu.mode,
            exclusive=workload.gpu.mode is GPUMode.EXCLUSIVE,
            lonely=workload.gpu.mode is GPUMode.EXCLUSIVE or not workload.sharing.allow,
            count=workload.gpu.count,
            min_percent=share.min_percent if share else WHOLE_PERCENT,
            max_percent=most if lane is None else min(most, LANE_PERCENT_MOST),
            memory_mib=workload.gpu.memory_mib,
            accelerators=self._accelerators(workload),
            domain=self.occupancy.domains.number(domain),
            trust_domain=domain if share is not None else "",
            known=self.classes.of(workload),
            judged=share is not None or has_objective(workload),
            percent_limit=self.view.snapshot.policy.max_percent_sum,
            needs=tuple((name, amount) for name, amount in amounts(shape.requests) if amount > 0),
            avoid=avoid,
            lane=lane,
        )

    def _accelerators(self, workload: WorkloadRecord) -> frozenset[int] | None:
        """Models that it may use; ``None`` = all. Chosen models without any device do not bind."""
        models, asked = self.occupancy.inventory.models, accelerators_asked(workload)
        if not models.keys() & set(asked):
            asked = workload.accelerators
        return frozenset(models[name] for name in asked if name in models) if asked else None

    def _place(self, workload: WorkloadRecord, shape: PodShape) -> Place | None:
        """The chosen pools; ``None`` for reliable members without a reliable pool."""
        place = self.places.get(workload.ref.uid)
        if place is None or place.stays or terms_of(workload) is None:
            return place
        if shape.affinity == workload.shape.affinity:
            return place
        if self._steady is None:
            self._steady = staying(self.view.snapshot.pools)
        return None if is_held_to(shape, self._steady) else place

    def _by_model(self, choice: DeviceChoice) -> _Worth:
        """Preference of models by a choice, and refusals of those it excludes; both by number."""
        entry = self._choices.get(id(choice))
        if entry is not None and entry[0] is choice:
            return entry[1]
        models = self.occupancy.inventory.models
        refusals = {name: choice.refusal(name) for name in models}
        refused = tuple(
            (models[name], refusal) for name, refusal in refusals.items() if refusal is not None
        )
        values: tuple[tuple[int, int], ...] = ()
        if len(models) > 1 and choice.values:
            worth = dict(choice.values)
            values = tuple((at, worth.get(name, choice.rest)) for name, at in models.items())
        self._choices[id(choice)] = choice, (values, refused)
        return values, refused

    def _unpinned(self, workload: WorkloadRecord, shape: PodShape) -> PodShape:
        """The shape without the node that we pinned the pod to when its gate was removed.

        A pod that runs is bound to its node, but the pod that would replace it is not.
        """
        if is_pinned(shape.affinity):
            return self.same(replace(shape, affinity=workload.shape.affinity))
        entry = self._kept.shapes.get(id(shape))  # by identity first: most shapes are shared
        if entry is None:
            entry = self._kept.shapes[id(shape)] = shape, self.same(shape)
        return entry[1]

    def same(self, shape: PodShape) -> PodShape:
        """The one object for equal shapes; it lives as long as the cycle."""
        return self._kept.by_value.setdefault(shape, shape)
