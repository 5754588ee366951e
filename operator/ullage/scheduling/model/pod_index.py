# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Indices of pods, kept from cycle to cycle: only changed pods are read again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.cluster.records.pod import PodRecord, PodStage

_STARTING: Final = (PodStage.UNSCHEDULED, PodStage.BOUND)


@dataclass(slots=True)
class PodIndex:
    """Our pods by name, and the uids of special ones."""

    names: dict[tuple[str, str], PodRecord] = field(default_factory=dict)
    """By (namespace, name)."""
    starting: set[str] = field(default_factory=set)
    """Pods without their gate that do not run yet."""
    orders: set[str] = field(default_factory=set)
    """Placeholders that request nodes."""
    leads: set[str] = field(default_factory=set)
    """Coordinators of jobs in tiers."""

    def update(
        self,
        uids: Collection[str],
        before: Mapping[str, PodRecord],
        pods: Mapping[str, PodRecord],
    ) -> None:
        """Update from the pods of a snapshot.

        Args:
            uids: Pods whose record changed, including added and removed ones.
            before: The pods of the last snapshot.
            pods: The pods of this one.
        """
        for uid in uids:
            for table in (self.starting, self.orders, self.leads):
                table.discard(uid)
            if uid in before:
                self.names.pop((before[uid].namespace, before[uid].name), None)
        for uid in uids:
            if uid in pods:
                self._enter(pods[uid])
        if len(self.names) != len(pods):  # two with one name: the later one counts
            self.names = {(pod.namespace, pod.name): pod for pod in pods.values()}

    def _enter(self, pod: PodRecord) -> None:
        self.names[pod.namespace, pod.name] = pod
        if pod.stage in _STARTING:
            self.starting.add(pod.uid)
        if pod.order:
            self.orders.add(pod.uid)
        if pod.lead:
            self.leads.add(pod.uid)
