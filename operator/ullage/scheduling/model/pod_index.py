# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods by what cycles ask for, kept from cycle to cycle: only pods that changed are read again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.cluster.records.pod import PodRecord, PodStage

_STARTING: Final = (PodStage.UNSCHEDULED, PodStage.BOUND)


@dataclass(slots=True)
class PodIndex:
    """Pods of ours by name, and the uids of those that are special."""

    names: dict[tuple[str, str], PodRecord] = field(default_factory=dict)
    """By (namespace, name)."""
    starting: set[str] = field(default_factory=set)
    """Without their gate, and not yet running."""
    orders: set[str] = field(default_factory=set)
    """Placeholders that order nodes."""
    leads: set[str] = field(default_factory=set)
    """Coordinators of jobs in tiers."""

    def update(
        self,
        uids: Collection[str],
        before: Mapping[str, PodRecord],
        pods: Mapping[str, PodRecord],
    ) -> None:
        """Take in the pods of a snapshot.

        Args:
            uids: Pods whose record is another one, new or gone.
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
        if len(self.names) != len(pods):  # two of one name: the later one counts
            self.names = {(pod.namespace, pod.name): pod for pod in pods.values()}

    def _enter(self, pod: PodRecord) -> None:
        self.names[pod.namespace, pod.name] = pod
        if pod.stage in _STARTING:
            self.starting.add(pod.uid)
        if pod.order:
            self.orders.add(pod.uid)
        if pod.lead:
            self.leads.add(pod.uid)
