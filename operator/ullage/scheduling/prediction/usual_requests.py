# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of the usual requests, as weights of fragmentation.

Kept from cycle to cycle: a workload is counted again when its record, the policy or the knowledge
about its class changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.reasons import Reason
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.scheduling.inventory.held_shares import accelerators_asked, share_asked
from ullage.scheduling.inventory.trust_domains import effective_domain
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.risk import Usual
from ullage.scheduling.prediction.workload_classes import Classes

_OVER: Final = (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class _RequestKind:
    """Requests that are counted together."""

    domain: str
    """Trust domain; empty for a whole device, which shares with no tenant."""
    min_percent: int
    accelerators: tuple[str, ...]
    """Empty = any."""
    barred: frozenset[int]
    """Models on which its objective cannot be met."""


@dataclass(slots=True)
class UsualCache:
    """Requests of the workloads in the last cycle."""

    _policy: PolicyRecord | None = None
    _known: object = None
    _workloads: Mapping[str, WorkloadRecord] = field(default_factory=dict)
    _kinds: dict[str, _RequestKind] = field(default_factory=dict)
    """By uid of the workload."""
    _counts: Counter[_RequestKind] = field(default_factory=Counter)
    _timed: set[str] = field(default_factory=set)
    """Workloads with a temporarily bounded share."""

    def update(self, view: View, classes: Classes) -> dict[str, Usual]:
        """Update from a snapshot.

        Returns:
            The usual requests by name of the accelerator.
        """
        workloads, policy = view.snapshot.workloads, view.snapshot.policy.rules()
        if policy != self._policy or classes.rests_on is not self._known:
            self._policy, self._known = policy, classes.rests_on
            self._workloads, self._kinds, self._counts = {}, {}, Counter()
        for uid in {*view.changes.workloads_since(self._workloads, workloads), *self._timed}:
            self._timed.discard(uid)
            old = self._kinds.pop(uid, None)
            if old is not None:
                self._counts[old] -= 1
                if not self._counts[old]:
                    del self._counts[old]
            workload = workloads.get(uid)
            if workload is not None and workload.status.phase not in _OVER:
                kind = self._kinds[uid] = _kind(view, classes, workload)
                self._counts[kind] += 1
                if workload.status.made_room is not None:
                    self._timed.add(uid)
        self._workloads = workloads
        return {name: self._of(name, at) for name, at in classes.inventory.models.items()}

    def _of(self, name: str, model: int) -> Usual:
        asked: Counter[tuple[str, int]] = Counter()
        for kind, count in self._counts.items():
            if model not in kind.barred and (not kind.accelerators or name in kind.accelerators):
                asked[kind.domain, kind.min_percent] += count
        weights = {at: 1 << (count.bit_length() - 1) for at, count in asked.items()}
        return Usual(tuple(sorted(weights.items())))


def _kind(view: View, classes: Classes, workload: WorkloadRecord) -> _RequestKind:
    share = share_asked(workload, view.now, view.snapshot.workloads)
    exclusive = workload.gpu.mode is GPUMode.EXCLUSIVE
    barred = classes.of(workload).barred
    return _RequestKind(
        domain=(effective_domain(view, workload) if share is not None and not exclusive else ""),
        min_percent=share.min_percent if share is not None else WHOLE_PERCENT,
        accelerators=accelerators_asked(workload),
        barred=frozenset(
            at
            for at, refusal in barred.items()
            if not exclusive or refusal.reason is not Reason.NEED_PROFILE
        ),
    )
