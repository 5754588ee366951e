# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The devices and nodes of a cycle, as far as they are constant during it.

Devices are sorted by their uuid, so an index is also the last tie-breaker. Nodes that are not
managed, or have no GPUNode, are not in the inventory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import is_, not_
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.api.devices import Backend, Health, ObservedDevice
from ullage.api.reasons import Reason
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.filters import usable_contexts
from ullage.engines.admission.limits import (
    DEVICE_UNHEALTHY,
    FIGURES,
    HEALTHY,
    NODE_LEAVES,
    NODE_UNHEALTHY,
    STATED,
    Facts,
)
from ullage.scheduling.inventory.interruptions import notice_on, words
from ullage.scheduling.model.changes import changed
from ullage.scheduling.model.view import View

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Fits = dict[tuple[int, bool], tuple[PodShape, Ints]]
"""By identity of the shape and ``in_principle``: the shape, and the answer of each node."""
MOST_FITS: Final = 512
"""Answers that an inventory passes on to the next one."""

DEFAULT_CONTEXT_OVERHEAD_MIB: Final = 512
"""Memory of a context on an NVIDIA device without a value in the DeviceProfile (design default)."""

_PASSING: Final = {name: stated for name, stated in STATED.items() if stated.passes}
"""Figures that change while a device stays in place."""


class NodeTrouble(NamedTuple):
    """Reason why a node accepts nothing new."""

    reason: Reason
    text: str

    @property
    def health(self) -> int:
        """Its code in the hard limits."""
        return NODE_LEAVES if self.reason is Reason.NODE_LEAVES else NODE_UNHEALTHY


@dataclass(frozen=True, slots=True)
class Device:
    """One device and its node."""

    uuid: str
    node: int
    device: ObservedDevice
    overhead_mib: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """Devices and nodes by index; the arrays have one entry per device."""

    nodes: tuple[NodeRecord, ...]
    node_troubles: tuple[NodeTrouble | None, ...]
    """By node: the reason why nothing new is accepted; ``None`` = it may."""
    sites: tuple[Device, ...]
    uuids: bytes
    """uuids of the devices, in order: their part of a digest."""
    sites_on: tuple[tuple[int, ...], ...]
    """By node: its devices."""
    mixed: frozenset[int]
    """Nodes with devices of more than one model."""
    node_index: Mapping[str, int]
    site_index: Mapping[tuple[str, str], int]
    """(node, uuid) -> device."""
    models: Mapping[str, int]
    model_names: tuple[str, ...]
    node_of: Ints
    sound: Ints
    """1 where the device itself is healthy, regardless of its node."""
    facts: Facts[Ints]
    """Figures of the devices without occupants."""
    fits: Fits = field(default_factory=dict, compare=False)
    """Answers of nodes to shapes; filled on demand, while the nodes are the same."""

    @property
    def model(self) -> Ints:
        """Number of the model of each device, as in ``model_names``."""
        return self.facts.model

    @property
    def health(self) -> Ints:
        """Health of each device, its node's included."""
        return self.facts.health

    def place_name(self, site: int) -> str:
        """Human-readable name of a device: node/uuid."""
        device = self.sites[site]
        return f"{self.nodes[device.node].name}/{device.uuid}"


@dataclass(frozen=True, slots=True)
class _Kept:
    """An inventory, and its source records."""

    inventory: Inventory
    records: Mapping[str, GPUNodeRecord]
    profiles: Mapping[str, DeviceProfileRecord]


@dataclass(slots=True)
class InventoryCache:
    """The inventory of the last cycle, updated while devices stay in place."""

    kept: _Kept | None = None


def take_inventory(view: View, cache: InventoryCache | None = None) -> Inventory:
    """Index the managed nodes that have a GPUNode, and their devices."""
    snapshot, cache = view.snapshot, cache or InventoryCache()
    records = snapshot.gpu_nodes
    names = sorted(
        name for name, record in snapshot.nodes.items() if record.managed and name in records
    )
    nodes = tuple(snapshot.nodes[name] for name in names)
    node_troubles = _troubles(view, nodes, cache.kept)
    inventory = _renewed(cache.kept, snapshot, nodes, node_troubles)
    if inventory is None:
        inventory = _arranged(snapshot, nodes, node_troubles)
    cache.kept = _Kept(inventory, records, snapshot.device_profiles)
    return inventory


def _troubles(
    view: View, nodes: tuple[NodeRecord, ...], kept: _Kept | None
) -> tuple[NodeTrouble | None, ...]:
    """By node: the reason why nothing new is accepted.

    A node without trouble stays so while its records do and it is heard.
    """
    records, most_s = view.snapshot.gpu_nodes, view.settings.heartbeat_max_age_s
    sound: dict[str, NodeRecord] = {}
    if kept is not None:
        last = kept.inventory
        flags = map(not_, last.node_troubles)
        sound = {node.name: node for node in compress(last.nodes, flags)}
    before = kept.records if kept is not None else {}
    return tuple(
        None
        if sound.get(node.name) is node
        and before[node.name] is (record := records[node.name])
        and view.now - record.heartbeat <= most_s
        else node_trouble(view, records[node.name], node)
        for node in nodes
    )


def _renewed(
    kept: _Kept | None,
    snapshot: Snapshot,
    nodes: tuple[NodeRecord, ...],
    node_troubles: tuple[NodeTrouble | None, ...],
) -> Inventory | None:
    """The last inventory with current figures; ``None`` where its set of devices differs."""
    if kept is None or changed(kept.profiles, snapshot.device_profiles):
        return None
    last, records = kept.inventory, snapshot.gpu_nodes
    if [record.name for record in nodes] != [record.name for record in last.nodes]:
        return None
    sites, sound = list(last.sites), last.sound.copy()
    columns = {name: getattr(last.facts, name).copy() for name in ("contexts", *_PASSING)}
    for name in changed(kept.records, records):
        node = last.node_index.get(name)
        if node is None:
            continue
        devices, before = records[name].devices, kept.records[name].devices
        if devices is before and all(device.mps is None for device in devices):
            continue  # what its slices changed counts for MPS servers only
        is_clear = len({device.uuid for device in devices}) == len(devices)
        if not is_clear or list(map(_fixed, devices)) != list(map(_fixed, before)):
            return None
        for device in devices:
            at = last.site_index[name, device.uuid]
            sites[at] = replace(sites[at], device=device)
            sound[at] = _is_sound(device)
            columns["contexts"][at] = _contexts(records[name], device)
            for figure, stated in _PASSING.items():
                columns[figure][at] = stated.read(device)
    same = len(last.fits) <= MOST_FITS and all(map(is_, nodes, last.nodes))
    return replace(
        last,
        fits=last.fits if same else {},
        nodes=nodes,
        node_troubles=node_troubles,
        sites=tuple(sites),
        sound=sound,
        facts=replace(last.facts, health=_health(sound, last.node_of, node_troubles), **columns),
    )


def _fixed(device: ObservedDevice) -> tuple[object, ...]:
    """Facts of a device that are constant while it stays in place."""
    lasting = (stated.read(device) for stated in STATED.values() if not stated.passes)
    return device.uuid, device.model, device.backend, *lasting


def _arranged(
    snapshot: Snapshot, nodes: tuple[NodeRecord, ...], node_troubles: tuple[NodeTrouble | None, ...]
) -> Inventory:
    names = [node.name for node in nodes]
    node_index = {name: index for index, name in enumerate(names)}
    overheads: dict[tuple[str, Backend], int] = {}
    sites: list[Device] = []
    for name in names:
        for device in snapshot.gpu_nodes[name].devices:
            kind = (device.model, device.backend)
            if kind not in overheads:
                overheads[kind] = overhead_mib(snapshot, device)
            sites.append(Device(device.uuid, node_index[name], device, overheads[kind]))
    sites.sort(key=lambda site: (site.uuid, site.node))
    on: list[list[int]] = [[] for _ in names]
    for index, site in enumerate(sites):
        on[site.node].append(index)
    models = {model: at for at, model in enumerate(sorted({site.device.model for site in sites}))}
    mixed = [
        node for node, held in enumerate(on) if len({sites[at].device.model for at in held}) > 1
    ]
    node_of = _column([site.node for site in sites])
    sound = _column([_is_sound(site.device) for site in sites])
    figures = {
        **dict.fromkeys(FIGURES, np.zeros_like(sound)),
        "model": _column([models[site.device.model] for site in sites]),
        "health": _health(sound, node_of, node_troubles),
        "overhead": _column([site.overhead_mib for site in sites]),
        "contexts": _column(
            [_contexts(snapshot.gpu_nodes[names[site.node]], site.device) for site in sites]
        ),
    }
    for name, stated in STATED.items():
        figures[name] = _column([stated.read(site.device) for site in sites])
    return Inventory(
        nodes=nodes,
        node_troubles=node_troubles,
        sites=tuple(sites),
        uuids="\n".join(site.uuid for site in sites).encode(),
        sites_on=tuple(tuple(devices) for devices in on),
        mixed=frozenset(mixed),
        node_index=node_index,
        site_index={(names[site.node], site.uuid): at for at, site in enumerate(sites)},
        models=models,
        model_names=tuple(models),
        node_of=node_of,
        sound=sound,
        facts=Facts(**figures),
    )


def overhead_mib(snapshot: Snapshot, device: ObservedDevice) -> int:
    """Memory that one context costs on the device, MiB."""
    profile = snapshot.device_profiles.get(device.model)
    if profile is not None and profile.context_overhead_mib > 0:
        return profile.context_overhead_mib
    return 0 if device.backend is Backend.EMULATED else DEFAULT_CONTEXT_OVERHEAD_MIB


def node_trouble(view: View, record: GPUNodeRecord, node: NodeRecord) -> NodeTrouble | None:
    """Reason why a node accepts nothing new; ``None`` when it does."""
    if record.retire:
        return NodeTrouble(Reason.NODE_LEAVES, "the node is being retired")
    if (notice := notice_on(node, record)) is not None:
        return NodeTrouble(Reason.NODE_LEAVES, words(notice))
    if text := _unhealthy(view, record, node):
        return NodeTrouble(Reason.NODE_UNHEALTHY, text)
    return None


def _unhealthy(view: View, record: GPUNodeRecord, node: NodeRecord) -> str:
    if not node.ready:
        return "the node is not Ready"
    if record.heartbeat <= 0:
        return "its agent has not been heard yet"
    silent_s = view.now - record.heartbeat
    if silent_s > view.settings.heartbeat_max_age_s:
        return f"its agent has been silent for {silent_s:.0f} s"
    for condition in record.conditions:
        if condition.type == "LateBinding" and condition.status == "False":
            return f"it cannot bind devices late ({condition.reason or Reason.CDI_UNAVAILABLE})"
    return ""


def _contexts(record: GPUNodeRecord, device: ObservedDevice) -> int:
    """Containers that may share a device.

    An MPS server supports a number of contexts, some of which are reserved; a container that opened
    more than one leaves fewer for others.
    """
    mps = device.mps
    if mps is None or not mps.context_limit:
        return device.contexts
    containers = {
        (part.key.pod_uid, part.key.container)
        for part in record.observed
        if part.gpu == device.uuid and part.phase.started
    }
    more = max(0, mps.contexts - len(containers))
    return max(0, min(device.contexts, usable_contexts(mps.context_limit)) - more)


def utilisation(profile: ProfileRecord | None, model: str) -> float:
    """Fraction of a device of this model that a class uses alone on the whole of it.

    From the declared row of the device nearest to the whole device; 1 without a declaration.
    """
    if profile is None:
        return 1.0
    rows = [entry for entry in profile.solo if entry.device == model and entry.sm_util > 0]
    if not rows:
        return 1.0
    return min(1.0, max(rows, key=lambda row: (row.share, -row.sm_util)).sm_util)


def _is_sound(device: ObservedDevice) -> int:
    return int(device.health is Health.HEALTHY)


def _health(sound: Ints, node_of: Ints, node_troubles: tuple[NodeTrouble | None, ...]) -> Ints:
    if not len(node_of):
        return sound
    of_nodes = _column([trouble.health if trouble else HEALTHY for trouble in node_troubles])
    of_node = of_nodes[node_of]
    return np.where(of_node, of_node, np.where(sound == 1, HEALTHY, DEVICE_UNHEALTHY))


def _column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
