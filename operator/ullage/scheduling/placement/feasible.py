# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests if a workload could ever run here, on an empty, healthy cluster.

Temporary obstacles (a cordon, a silent agent, the current tenants) do not count. For a workload
that fails no pod is created, and its status has the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.api.labels import SLOT_RESOURCE
from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import (
    LIMITS,
    WHOLE_PERCENT,
    Facts,
    ceiling,
    memory_needed,
    never_text,
)
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import Refusal
from ullage.scheduling.feasibility.device_facts import allowed_model, emptied, one_device
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.inventory.node_fit import Fit, allocatable, counted, why_not
from ullage.scheduling.inventory.tenant_bindings import not_bound
from ullage.scheduling.inventory.trust_domains import not_granted
from ullage.scheduling.placement.candidates import CandidateIndex

_MOST_NAMED: Final = 4


def _least(workload: WorkloadRecord) -> int:
    """Members that a workload needs to run."""
    if workload.elasticity is not None:
        return workload.elasticity.min_replicas
    return workload.replicas if workload.is_gang else min(1, workload.replicas)


@dataclass(slots=True)
class Feasibility:
    """Evaluates feasibility, once per class."""

    candidate_index: CandidateIndex
    snapshot: Snapshot
    _rooms: dict[int, int | Refusal] = field(default_factory=dict)
    """By class: members that an empty cluster accepts, or the obstacle of every device."""
    _amounts: dict[str, Ints] = field(default_factory=dict)
    _empty: Facts[Ints] | None = None
    """Figures of the empty devices; the same for every class of a cycle."""

    def judge(
        self, workload: WorkloadRecord, request: ResourceRequest, members: int | None = None
    ) -> Refusal | None:
        """The refusal of a workload that can never run here; ``None`` when it could.

        Args:
            workload: A gang is judged as a whole.
            request: The request of each member.
            members: Members of the gang; ``None`` = the minimum that it can run with.
        """
        apart = self.stands_apart(workload)
        if apart is not None:
            return apart
        if request.place is not None and request.place.grows:
            return None  # nodes that do not exist yet may be of any size
        if workload.accelerators:
            unknown = self._unknown_accelerators(workload)
            if unknown is not None:
                return unknown
        barred = self._barred(request)
        if barred is not None:
            return barred
        room = self._rooms.get(request.number)
        if room is None:
            room = self._rooms[request.number] = self._room(request)
        if isinstance(room, Refusal):
            return room
        needed = members or _least(workload)
        if room >= needed:
            return None
        of_one_type = " on one accelerator type (spec.mixedAccelerators is false)"
        return Refusal(
            Reason.GANG_TOO_LARGE,
            f"even empty, the cluster has room for {room} of {needed} members"
            + of_one_type * request.uniform,
        )

    def stands_apart(self, workload: WorkloadRecord) -> Refusal | None:
        """The refusal of a trust domain or tenant that it may not name; ``None`` = it may."""
        policy = self.snapshot.policy
        text = not_granted(policy, workload)
        if text:
            return Refusal(Reason.TRUST_DOMAIN_NOT_GRANTED, text)
        text = not_bound(policy, workload)
        return Refusal(Reason.TENANT_NOT_ALLOWED, text) if text else None

    def _barred(self, request: ResourceRequest) -> Refusal | None:
        """The refusal of an objective that no allowed model can meet, or be evaluated for."""
        models = set(self.candidate_index.occupancy.inventory.models.values())
        if request.accelerators is not None:
            models &= request.accelerators
        if not models or not models <= request.barred.keys():
            return None
        # a missing declaration is easier to fix than an impossible objective
        refusals = sorted(
            (request.barred[at] for at in models),
            key=lambda barred: (
                barred.reason is not Reason.NEED_PROFILE,
                barred.reason,
                barred.text,
            ),
        )
        if models <= request.refused.keys():
            text = "; ".join(barred.text for barred in refusals[:_MOST_NAMED])
            return Refusal(
                refusals[0].reason, f"no accelerator keeps the bounds of spec.cost: {text}"
            )
        return refusals[0]

    def _unknown_accelerators(self, workload: WorkloadRecord) -> Refusal | None:
        accelerators = (
            self.candidate_index.occupancy.inventory.models.keys()
            | self.snapshot.device_profiles.keys()
        )
        if any(accelerator in accelerators for accelerator in workload.accelerators):
            return None
        if not self.candidate_index.occupancy.inventory.sites:
            return None
        return Refusal(
            Reason.UNKNOWN_ACCELERATOR,
            f"no device or DeviceProfile is called {' or '.join(workload.accelerators)}; known:"
            f" {', '.join(sorted(accelerators))}",
        )

    def _room(self, request: ResourceRequest) -> int | Refusal:
        inventory = self.candidate_index.occupancy.inventory
        if not inventory.nodes:
            return Refusal(Reason.NO_NODE_MATCHES, "no node is labelled ullage.dev/node=true")
        if not inventory.sites:
            return Refusal(Reason.NODE_UNHEALTHY, "no node has reported a device yet")
        fits = self.candidate_index.fit(request.shape, in_principle=True)
        pods = np.where(fits == int(Fit.OK), self._pods_on_empty_nodes(request), 0)
        if not pods.any():
            return self._no_node(request, fits.tolist())
        if self._empty is None:
            self._empty = emptied(inventory)
        facts = self._empty
        alive = (pods > 0)[inventory.node_of] & allowed_model(facts, request)
        if not alive.any():
            return Refusal(
                Reason.NO_NODE_MATCHES, "no node that fits has one of the accelerators asked for"
            )
        for limit in LIMITS:
            passing = alive & (limit.short(facts, request) <= 0)
            if not passing.any():
                sites = np.flatnonzero(alive)
                best = sites[np.lexsort((-facts.memory[sites], limit.short(facts, request)[sites]))]
                text = never_text(limit, one_device(facts, best.item(0)), request)
                return Refusal(limit.reason, text)
            alive = passing
        least = self._least_shares(request, facts, alive)
        if isinstance(least, Refusal):
            return Refusal(
                Reason.PREDICTED_SLO_BREACH,
                f"even alone on a device, at {least.percent} % it would run"
                f" {least.predicted:.2f} times slower than on a whole one (predicted), its"
                f" objective allows {least.allowed:g}",
            )
        alive = alive & (least > 0)
        models = np.unique(facts.model[alive]).tolist() if request.uniform else []
        of_model = [alive & (facts.model == model) for model in models]
        return max(
            self._count(request, facts, np.where(devices, least, 0), pods)
            for devices in (of_model or [alive])
        )

    def _pods_on_empty_nodes(self, request: ResourceRequest) -> Ints:
        """By node: pods of the shape that it accepts when empty; device slots are not counted."""
        nodes = self.candidate_index.occupancy.inventory.nodes
        room: Ints | None = None
        for name, amount in request.needs:
            if name == SLOT_RESOURCE:
                continue
            column = self._amounts.get(name)
            if column is None:
                most = [counted(allocatable(node, name)) for node in nodes]
                column = self._amounts[name] = np.array(most, dtype=np.int64)
            takes = column // amount
            room = takes if room is None else np.minimum(room, takes)
        if room is None:
            raise ValueError("a pod counts as one pod at least")
        return room

    def _no_node(self, request: ResourceRequest, fits: Sequence[int]) -> Refusal:
        """The obstacle of every node, shown for the one that comes closest."""
        nodes = self.candidate_index.occupancy.inventory.nodes
        if Fit.OK in fits:
            node = nodes[fits.index(Fit.OK)]
            return Refusal(
                Reason.NO_NODE_MATCHES,
                f"the pod requests more cpu, memory or other resources than any node has, such as"
                f" {node.name}",
            )
        conflict = Fit.PIN_CONFLICT in fits
        node = nodes[fits.index(Fit.PIN_CONFLICT if conflict else Fit.NO_MATCH)]
        reason = Reason.NODE_AFFINITY_CONFLICT if conflict else Reason.NO_NODE_MATCHES
        return Refusal(reason, f"no node fits; {node.name}: {why_not(request.shape, node)}")

    def _least_shares(
        self, request: ResourceRequest, facts: Facts[Ints], alive: Flags
    ) -> Ints | Refusal:
        """By device, the smallest share that meets the newcomer's own objective; 0 = none does.

        If no device has such a share: the refusal that comes closest.
        """
        least = np.full(len(alive), request.min_percent, dtype=np.int64)
        if all(tenant.max_slowdown is None for tenant in request.known.tenants):
            return least
        nearest: Refusal | None = None
        suits = False
        tops = ceiling(facts, request)
        for model in np.unique(facts.model[alive]).tolist():
            site = int(np.flatnonzero(alive & (facts.model == model))[0])
            top = WHOLE_PERCENT if request.exclusive else tops.item(site)
            case = self.candidate_index.empty_case(request, model, top)
            fits, missed = self._least_share(case, request.min_percent, top)
            suits = suits or bool(fits)
            least[facts.model == model] = fits
            if missed is not None and (nearest is None or missed.excess < nearest.excess):
                nearest = missed
        return least if suits or nearest is None else nearest

    def _least_share(
        self, case: AdmissionQuery, least: int, top: int
    ) -> tuple[int, Refusal | None]:
        """The smallest share that keeps the newcomer's objective, or 0 and the closest refusal."""
        nearest: Refusal | None = None
        for percent in range(least, top + 1):
            violation = self.candidate_index.rule.alone(case, percent)
            if violation is None:
                return percent, None
            if nearest is None or violation.excess < nearest.excess:
                nearest = violation
        return 0, nearest

    def _count(self, request: ResourceRequest, facts: Facts[Ints], least: Ints, pods: Ints) -> int:
        """Members that fit at once on empty nodes, each at its smallest share (0 = refused)."""
        node_of = self.candidate_index.occupancy.inventory.node_of
        alive = least > 0
        if request.exclusive:
            on_node = np.bincount(node_of[alive], minlength=len(pods)) // request.count
        else:
            shares = np.maximum(least, 1)
            need = memory_needed(facts, request, shares)
            each = np.minimum(
                np.minimum(facts.contexts, request.percent_limit // shares),
                facts.memory // np.maximum(need, 1),
            )
            on_node = np.zeros(len(pods), dtype=np.int64)
            np.add.at(on_node, node_of[alive], each[alive])
        return int(np.minimum(on_node, pods).sum())
