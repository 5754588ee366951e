# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Admission warnings about a new spec that decisions could not satisfy.

They depend on the devices and pools of the cluster, not on their use: warnings are cheap, may be
incomplete and refuse nothing. They use only data that every user of the cluster may read (nodes,
pools, types, the policy), never objects of other namespaces or profiles, because callers of the
port are not authenticated.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ullage import ports
from ullage.api.devices import GPUMode, ObservedDevice
from ullage.api.gpurequest import GPURequest
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.projection.pool import project_pool
from ullage.cluster.projection.spec import read_accelerators, read_gpu
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.readable import complaint
from ullage.ports import JsonObject, Kind
from ullage.scheduling.inventory.tenant_bindings import not_bound
from ullage.scheduling.inventory.trust_domains import not_granted
from ullage.scheduling.status.policies import ONLY_DEFAULT

MOST_NAMED: Final = 6
"""Accelerators that a text lists."""
_MIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOffer:
    """Devices of one accelerator, on nodes and in pools."""

    devices: int = 0
    """Number of devices on nodes."""
    at_once: int = 0
    """Most devices of a node, or of an instance of a pool."""
    memory_mib: int = 0
    """Memory of the largest device without a context; 0 = not known."""
    modes: frozenset[GPUMode] = frozenset(GPUMode)
    least_percent: int = 0
    """Smallest share that a device can enforce, percent; 0 = any."""
    combines: bool = True
    """True when a container may have several devices of it."""
    grows: bool = False
    """True when a pool may add nodes with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Devices of the cluster, and the policy."""

    by_accelerator: Mapping[str, DeviceOffer]
    profiled: frozenset[str] = frozenset()
    """Accelerators with a DeviceProfile."""
    policy: PolicyRecord = field(default_factory=PolicyRecord)


def offers_of(snapshot: Snapshot) -> Offers:
    """Devices on nodes and in pools, with unhealthy ones."""
    devices, at_once = Counter[str](), Counter[str]()
    by_model: defaultdict[str, list[ObservedDevice]] = defaultdict(list)
    for node in snapshot.gpu_nodes.values():
        for model, count in Counter(device.model for device in node.devices).items():
            devices[model] += count
            at_once[model] = max(at_once[model], count)
        for device in node.devices:
            by_model[device.model].append(device)
    pools = {pool.accelerator for pool in snapshot.pools.values()}
    for pool in snapshot.pools.values():
        at_once[pool.accelerator] = max(at_once[pool.accelerator], pool.gpus_per_instance)
    offers = {}
    for model in at_once:
        profile = snapshot.device_profiles.get(model)
        there = by_model[model]
        memory_mib = max((device.memory_mib for device in there), default=0)
        memory_mib = memory_mib or (profile.memory_mib if profile is not None else 0)
        context = profile.context_overhead_mib if profile is not None else 0
        offers[model] = DeviceOffer(
            devices=devices[model],
            at_once=at_once[model],
            memory_mib=max(0, memory_mib - context),
            modes=frozenset(mode for device in there for mode in device.modes)
            if there
            else frozenset(GPUMode),
            least_percent=min((device.least_percent for device in there), default=0),
            combines=not all(device.alone for device in there) or not there,
            grows=model in pools,
        )
    return Offers(
        by_accelerator=offers, profiled=frozenset(snapshot.device_profiles), policy=snapshot.policy
    )


def advise(kind: Kind, raw: JsonObject, offers: Offers) -> tuple[str, ...]:
    """Warnings about an object that the API server is about to accept.

    Args:
        kind: One of ``ADVISED``.
        raw: The object, with name and uid.
        offers: Devices of the cluster.
    """
    try:
        return tuple(_ADVICE[kind](raw, offers))
    except Exception as error:  # any fault is one of this object
        return (_unread(complaint(error)),)


def _unread(why: str) -> str:
    return f"{why}; until that is corrected this version changes nothing"


def _of_workload(kind: WorkloadKind, raw: JsonObject, offers: Offers) -> Iterator[str]:
    workload, _blueprint = project_workload(kind, raw, None, Sharer())
    if workload.invalid:
        yield _unread(workload.invalid)
        return
    policy = offers.policy
    yield from filter(None, (not_granted(policy, workload), not_bound(policy, workload)))
    yield from _of_devices("spec", workload.gpu, workload.accelerators, offers)
    yield from _of_gang(workload, offers)


def _of_search(raw: JsonObject, offers: Offers) -> Iterator[str]:
    trial = json.loads(project_tuning_job(raw).trial_template)
    yield from _of_devices("spec.trialTemplate", read_gpu(trial), read_accelerators(trial), offers)


def _of_pool(raw: JsonObject, offers: Offers) -> Iterator[str]:
    pool = project_pool(raw)
    accelerators = offers.by_accelerator.keys() | offers.profiled
    yield from _unknown("spec.accelerator", (pool.accelerator,), accelerators, "no DeviceProfile")


def _of_policy(raw: JsonObject, offers: Offers) -> Iterator[str]:
    name, policy = project_policy(raw)
    if name != PolicyRecord().name:
        yield ONLY_DEFAULT
        return
    named = {quota.accelerator for tenant in policy.tenants for quota in tenant.quota}
    yield from _unknown("spec.tenants.quota.accelerator", sorted(named), offers.by_accelerator)


_ADVICE: Final[Mapping[Kind, Callable[[JsonObject, Offers], Iterator[str]]]] = {
    ports.TRAINING_JOB: partial(_of_workload, WorkloadKind.TRAINING_JOB),
    ports.INFERENCE_DEPLOYMENT: partial(_of_workload, WorkloadKind.INFERENCE_DEPLOYMENT),
    ports.TUNING_JOB: _of_search,
    ports.CAPACITY_POOL: _of_pool,
    ports.SCHEDULING_POLICY: _of_policy,
}
ADVISED: Final = tuple(_ADVICE)
"""Kinds with warnings."""


def _unknown(
    field: str, names: Iterable[str], offered: Iterable[str], nor: str = "no pool"
) -> Iterator[str]:
    """Warning about unknown accelerators; none while the cluster has no accelerator at all."""
    there = sorted(offered)
    strange = [name for name in names if name not in there]
    if not there or not strange:
        return
    more = f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
    yield (
        f"{field}: no node and {nor} has accelerator {', '.join(strange[:MOST_NAMED])}; "
        f"there are {', '.join(there[:MOST_NAMED])}{more}"
    )


def _allowed(accelerators: Sequence[str], offers: Offers) -> list[DeviceOffer]:
    there = offers.by_accelerator
    return [there[name] for name in accelerators or there if name in there]


def _of_devices(
    field: str, gpu: GPURequest, accelerators: Sequence[str], offers: Offers
) -> Iterator[str]:
    """Warnings about requests that no device of the allowed accelerators can satisfy."""
    yield from _unknown(f"{field}.accelerators", accelerators, offers.by_accelerator)
    allowed = _allowed(accelerators, offers)
    if not allowed:
        return
    if not any(gpu.mode in offer.modes for offer in allowed):
        yield f"{field}.gpu.mode: no suitable device here offers {gpu.mode}"
    least = min(offer.least_percent for offer in allowed)
    if gpu.share is not None and gpu.share.min_percent < least:
        yield (
            f"{field}.gpu.share.minPercent: no suitable device here can enforce a share of "
            f"{gpu.share.min_percent} %; the least is {least} %"
        )
    if gpu.count > 1 and not any(offer.combines for offer in allowed):
        yield f"{field}.gpu.count: a container can have one of the suitable devices here"
    most = max(offer.at_once for offer in allowed)
    if gpu.count > most:
        yield f"{field}.gpu.count: no node here has {gpu.count} such devices; at most {most}"
    largest = max(offer.memory_mib for offer in allowed)
    is_known = all(offer.memory_mib for offer in allowed)
    if is_known and gpu.memory_mib > largest:
        what = "lane" if gpu.lane is not None else "memory"
        yield (
            f"{field}.gpu.{what}: no suitable device here has {_gib(gpu.memory_mib)} beside its "
            f"context; the largest has {_gib(largest)}"
        )


def _of_gang(workload: WorkloadRecord, offers: Offers) -> Iterator[str]:
    """Warning about a gang of whole devices that does not fit into an empty cluster."""
    allowed = _allowed(workload.accelerators, offers)
    if workload.kind is not WorkloadKind.TRAINING_JOB or workload.gpu.mode is not GPUMode.EXCLUSIVE:
        return
    if not allowed or any(offer.grows for offer in allowed):
        return
    elasticity = workload.elasticity
    members = elasticity.min_replicas if elasticity is not None else workload.replicas
    counts = [offer.devices for offer in allowed]
    most = sum(counts) if workload.mixed_accelerators else max(counts)
    if members > 1 and members * workload.gpu.count > most:
        of_type = "" if workload.mixed_accelerators else " of one accelerator"
        yield (
            f"spec.replicas: {members} members take {members * workload.gpu.count} devices{of_type}"
            f" at once; there are {most}"
        )


def _gib(mib: int) -> str:
    return f"{mib / _MIB:.4g} GiB"
