# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Claims of our pods, joined with their volumes and classes, and the nodes that can use them.

Every claim and volume of the cluster is stored, in few fields, because one of our pods may use it
next; only used ones reach a snapshot, and only then a change of one triggers a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from ullage.cluster.cache.stores import Context, PlainStore, full_name_of, name_of
from ullage.cluster.projection.volume import (
    StorageClass,
    Volume,
    VolumeClaim,
    project_claim,
    project_namespace,
    project_storage_class,
    project_volume,
)
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_rules import ClaimRecord, FreeVolume, Labels
from ullage.cluster.values import streams
from ullage.ports import JsonObject

Key = TypeVar("Key", bound=Hashable)
Record = TypeVar("Record")

_ONE_POD: Final = "ReadWriteOncePod"
_ONE_NODE: Final = "ReadWriteOnce"


class QuietStore(PlainStore[Key, Record]):
    """Objects whose changes are relevant only while one of our pods has rules."""

    def __init__(
        self,
        stream: str,
        context: Context,
        key: Callable[[JsonObject], Key],
        project: Callable[[JsonObject], Record],
        wanted: Callable[[], bool],
    ) -> None:
        super().__init__(stream, context, key, project)
        self._wanted = wanted

    def _changed(self) -> bool:
        return self._wanted() and super()._changed()


class Volumes:
    """Stores of the inputs of claims, and the result for each claim."""

    def __init__(self, context: Context, wanted: Callable[[], bool]) -> None:
        """``wanted`` returns True if any of our pods has rules."""
        share = context.share
        self.claims: QuietStore[tuple[str, str], VolumeClaim] = QuietStore(
            streams.CLAIMS.name, context, full_name_of, project_claim, wanted
        )
        self.volumes: QuietStore[str, Volume] = QuietStore(
            streams.VOLUMES.name, context, name_of, lambda raw: project_volume(raw, share), wanted
        )
        self.classes: QuietStore[str, StorageClass] = QuietStore(
            streams.STORAGE_CLASSES.name, context, name_of, project_storage_class, wanted
        )
        self.namespaces: QuietStore[str, Labels] = QuietStore(
            streams.NAMESPACES.name,
            context,
            name_of,
            lambda raw: project_namespace(raw, share)[1],
            wanted,
        )
        self._by_class: tuple[object, Mapping[str, list[Volume]]] = (None, {})
        self._shown: dict[tuple[str, str], ClaimRecord] = {}

    def shown(self, pods: list[PodRecord]) -> Mapping[tuple[str, str], ClaimRecord]:
        """The claims of some pods; an unchanged one is the same object as last time."""
        claims: dict[tuple[str, str], ClaimRecord] = {}
        for pod in pods:
            for name in pod.rules.claims if pod.rules is not None else ():
                key = pod.namespace, name
                if key not in claims:
                    record = self._record(key, pod)
                    before = self._shown.get(key)
                    claims[key] = before if before is not None and before == record else record
        self._shown = claims
        return claims

    def _record(self, key: tuple[str, str], pod: PodRecord) -> ClaimRecord:
        claim = self.claims.table.get(key)
        what = f"PersistentVolumeClaim {key[1]}"
        if claim is None:
            return ClaimRecord(problem=f"{what} does not exist")
        if claim.deleting:
            return ClaimRecord(problem=f"{what} is being deleted")
        if claim.lost:
            return ClaimRecord(problem=f"{what} has lost its volume {claim.volume}")
        ephemeral = pod.rules is not None and key[1] in pod.rules.ephemeral
        if ephemeral and claim.pod_uid != pod.uid:
            return ClaimRecord(problem=f"{what} was not made for the ephemeral volume of this pod")
        if claim.bound:
            return self._bound(claim, what)
        kind = self.classes.table.get(claim.storage_class)
        if kind is None or not kind.waits or claim.volume:
            return ClaimRecord(problem=f"{what} is not bound to a volume yet")
        return self._waiting(claim, kind)

    def _bound(self, claim: VolumeClaim, what: str) -> ClaimRecord:
        volume = self.volumes.table.get(claim.volume)
        if volume is None:
            return ClaimRecord(problem=f"the volume {claim.volume} of {what} does not exist")
        return ClaimRecord(
            once=_ONE_POD in claim.modes,
            volume=volume.name,
            nodes=volume.nodes,
            zones=volume.zones,
        )

    def _waiting(self, claim: VolumeClaim, kind: StorageClass) -> ClaimRecord:
        suitable = [
            volume for volume in self._of_class(kind.name) if _suits(volume, claim, kind.name)
        ]
        claimed = next((volume.name for volume in suitable if volume.claim is not None), "")
        return ClaimRecord(
            once=_ONE_POD in claim.modes,
            one_node=set(claim.modes) <= {_ONE_POD, _ONE_NODE},
            selected_node=claim.selected_node,
            size=claim.size,
            candidates=tuple(
                FreeVolume(name=volume.name, nodes=volume.nodes) for volume in suitable
            ),
            own=claimed,
            provisioned=kind.provisions,
            topologies=kind.topologies,
        )

    def _of_class(self, name: str) -> list[Volume]:
        """Volumes of a class, and those that name a claim; the smallest first."""
        table = self.volumes.table.view()
        if self._by_class[0] is not table:
            by_class: dict[str, list[Volume]] = {}
            for volume in sorted(table.values(), key=lambda volume: (volume.size, volume.name)):
                by_class.setdefault(volume.storage_class, []).append(volume)
            self._by_class = table, by_class
        return self._by_class[1].get(name, [])


def _suits(volume: Volume, claim: VolumeClaim, storage_class: str) -> bool:
    """True when a volume could be bound to a claim, apart from its nodes."""
    if volume.deleting or volume.size < claim.size or volume.volume_mode != claim.volume_mode:
        return False
    if volume.claim is not None:
        namespace, name, uid = volume.claim
        return (namespace, name) == (claim.namespace, claim.name) and uid in ("", claim.uid)
    return (
        volume.available
        and volume.storage_class == storage_class
        and set(claim.modes) <= set(volume.modes)
        and (claim.selector is None or claim.selector.matches(dict(volume.labels)))
    )
