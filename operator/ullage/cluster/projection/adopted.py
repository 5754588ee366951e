# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of other controllers as workloads, by their labels and annotations.

Every value is parsed like the corresponding field of our kinds. A pod with an unreadable request
waits and reports it; it keeps its gate, and nothing else is stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from ullage.api.adoption import KEYS, MOST_PODS, AdoptionKey
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest
from ullage.api.labels import GATE, SLOT_RESOURCE
from ullage.api.objective import read_latency_slo
from ullage.api.observations import LatencyObjective
from ullage.api.readers import JsonObject, WireError, bounded, objects, quoted, section, text
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import default_trust_domain
from ullage.api.trainingjob import read_training_slo
from ullage.api.words import Inject
from ullage.cluster.codecs.objects import Meta, Sharer, identity, is_domain, word
from ullage.cluster.codecs.pod_status import read_pod_status
from ullage.cluster.projection.pod_shape import read_amounts
from ullage.cluster.projection.spec import read_accelerators, read_gpu
from ullage.cluster.projection.workload_class import class_key, family_key
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.readable import complaint, complete

KeyValues = Mapping[AdoptionKey, str]
"""Values of the pod's keys."""
_SHARE: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,6}")
_ONE_REVISION: Final = ("apps", "ReplicaSet")
_REVISION: Final = "controller-revision-hash"
"""Label of pods of StatefulSets and DaemonSets."""
_UID_MOST: Final = 64
_TOO_FAR: Final = 2**40
"""Placeholder for an invalid number: every bound rejects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedPod:
    """A pod that shares devices by its labels."""

    pod: ObjectRef
    terms: WorkloadRecord
    """The workload described by this pod alone."""
    status: WorkloadStatus
    """The pod's status."""
    gated: bool
    finished: bool
    leaving: bool
    """It is being deleted, or has ended."""
    controller: str
    """uid of the controller that recreates it; empty without one."""
    succeeded: bool = False
    """It succeeded by itself."""
    group: str = ""
    """PodGroup of Kubernetes that it is placed with; empty if it names none, or one of our
    gangs."""
    gang: bool = False
    """It belongs to a gang."""
    revision: str = ""
    """Revision of its template, where one controller keeps several."""


def unit_of(meta: Meta) -> ObjectRef:
    """The workload of an adopted pod: itself, or the gang in its own namespace.

    A gang has no object, and a uid that no object can have. A ReplicaSet is one revision of its
    Deployment: its pods are a separate gang. ``AdoptedPods`` knows the others.
    """
    gang = meta.labels.get(AdoptionKey.GANG.key, "")
    name, uid = (gang, f"gang/{meta.namespace}/{gang}") if gang else (meta.name, meta.uid)
    ref = ObjectRef(kind=WorkloadKind.POD, namespace=meta.namespace, name=name, uid=uid)
    holder = meta.controller
    if gang and holder is not None and (holder.group, holder.kind) == _ONE_REVISION:
        return run_of(ref, holder.uid)
    return ref


def run_of(gang: ObjectRef, controller: str) -> ObjectRef:
    """The gang of one controller's pods.

    Args:
        gang: All pods of the gang's name.
        controller: uid of the controller, as in a pod.
    """
    known = controller if len(controller) <= _UID_MOST else sha256(controller.encode()).hexdigest()
    return replace(gang, uid=f"{gang.uid}/{known}")


def scheduling_group(meta: Meta, spec: JsonObject) -> str:
    """The PodGroup named by an adopted pod; its gang label has precedence.

    Raises:
        WireError: the field is malformed.
    """
    if AdoptionKey.GANG.key in meta.labels:
        return ""
    return text(section(spec, "schedulingGroup"), "podGroupName", "")


def group_unit(namespace: str, group: str) -> ObjectRef:
    """The workload of the pods of a PodGroup, with a uid that no object can have."""
    uid = f"podgroup/{namespace}/{group}"
    return ObjectRef(kind=WorkloadKind.POD, namespace=namespace, name=group, uid=uid)


def read_pod_group(raw: JsonObject) -> int:
    """Minimum of members of a PodGroup; 0 = each of them alone.

    Raises:
        WireError: the object is malformed, or exceeds the limit of a gang.
    """
    complete(raw)
    gang = section(section(section(raw, "spec"), "schedulingPolicy"), "gang")
    return bounded(gang, "minCount", 1, MOST_PODS) if gang else 0


def device_container(meta: Meta, spec: JsonObject) -> int:
    """Index of the container with the device; the first where the pod names no existing one."""
    container_name = meta.annotations.get(AdoptionKey.CONTAINER.key)
    names = [container.get("name") for container in objects(spec, "containers")]
    return names.index(container_name) if container_name in names else 0


def project_adopted(raw: JsonObject, record: PodRecord, share: Sharer) -> AdoptedPod:
    """Read an adopted pod's request, and its status.

    Args:
        raw: The pod.
        record: Its other data; its owner is the workload.
        share: Returns one object for equal values.
    """
    meta = identity(raw)
    try:
        terms = _terms(meta, raw, record)
    except Exception as error:  # any error concerns only this object
        terms = replace(
            _plain(meta, record), shape=PodShape(device_container=""), invalid=complaint(error)
        )
    return AdoptedPod(
        pod=ObjectRef(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
        terms=replace(
            terms,
            gpu=share(terms.gpu),
            accelerators=share(terms.accelerators),
            trust_domain=share(terms.trust_domain),
            workload_class=share(terms.workload_class),
            family=share(terms.family),
        ),
        status=read_pod_status(meta.annotations, section(raw, "status")),
        gated=GATE in record.gates,
        finished=record.stage.finished,
        succeeded=record.stage is PodStage.SUCCEEDED,
        leaving=record.deleting or record.stage.finished,
        controller=record.controller,
        gang=AdoptionKey.GANG.key in meta.labels,
        group=scheduling_group(meta, section(raw, "spec")),
        revision=share(meta.labels.get(_REVISION, "") if record.controller else ""),
    )


def _plain(meta: Meta, record: PodRecord) -> WorkloadRecord:
    """The workload with only its identity."""
    return WorkloadRecord(
        ref=record.owner,
        kind=WorkloadKind.POD,
        generation=1,
        resource_version="",
        created=meta.created,
        deleting=False,
        shape=record.shape,
        template_hash="",
        trust_domain=default_trust_domain(meta.namespace),
        priority=record.priority,
    )


def _terms(meta: Meta, raw: JsonObject, record: PodRecord) -> WorkloadRecord:
    values = _key_values(meta)
    spec = section(raw, "spec")
    gpu = _gpu(values)
    _check_prepared(meta, spec, record, gpu)
    slowdown, latency = _objectives(values)
    accelerators = values.get(AdoptionKey.ACCELERATORS)
    template = _as_template(meta, spec, values)
    domain = values.get(AdoptionKey.TRUST_DOMAIN, "")
    if domain and not is_domain(domain):
        why = "it is no name of a trust domain, which holds no slash"
        raise _wrong(AdoptionKey.TRUST_DOMAIN, domain, why)
    with _about(AdoptionKey.PROFILE, values):
        profile = word({"profile": values.get(AdoptionKey.PROFILE)}, "profile")
    with _about(AdoptionKey.TENANT, values):
        tenant = word({"tenant": values.get(AdoptionKey.TENANT)}, "tenant")
    with _about(AdoptionKey.ACCELERATORS, values):
        types = read_accelerators({"accelerators": accelerators.split(",") if accelerators else []})
    return replace(
        _plain(meta, record),
        replicas=_members(values),
        gpu=gpu,
        accelerators=types,
        trust_domain=domain or default_trust_domain(meta.namespace),
        profile_ref=profile,
        tenant=tenant,
        max_slowdown=slowdown,
        slo=latency,
        checkpoint=_flag(values),
        inject=_inject(values),
        stragglers=_stragglers(values),
        workload_class=class_key(template, {}),
        family=family_key(template, {}),
    )


def _key_values(meta: Meta) -> KeyValues:
    """Values by key; the class may be in a label or an annotation."""
    values: dict[AdoptionKey, str] = {}
    for key, meaning in KEYS.items():
        place = meta.labels if meaning.is_label else meta.annotations
        if key.key in place:
            values[key] = place[key.key]
    if AdoptionKey.CLASS.key in meta.labels:
        values[AdoptionKey.CLASS] = meta.labels[AdoptionKey.CLASS.key]
    return values


@contextmanager
def _about(key: AdoptionKey, values: KeyValues) -> Iterator[None]:
    """Prefix a reader's error with its key, and append the remedy.

    Raises:
        WireError: the value could not be read.
    """
    try:
        yield
    except WireError as error:
        raise _wrong(key, values.get(key, ""), str(error)) from error


def _wrong(key: AdoptionKey, value: str, why: str) -> WireError:
    place = "label" if KEYS[key].is_label else "annotation"
    return WireError(f"{place} {key.key}={quoted(value)}: {why}; {KEYS[key].remedy}")


def _gpu(values: KeyValues) -> GPURequest:
    """The devices requested by a pod."""
    share, devices = values.get(AdoptionKey.SHARE), values.get(AdoptionKey.DEVICES)
    if share is not None and devices is not None:
        raise WireError(
            f"labels {AdoptionKey.SHARE.key} and {AdoptionKey.DEVICES.key} stand beside one"
            " another: write one of them"
        )
    if share is not None:
        with _about(AdoptionKey.SHARE, values):
            gpu = read_gpu({"gpu": _fraction(share)})
    else:
        with _about(AdoptionKey.DEVICES, values):
            gpu = read_gpu({"gpu": {"count": _number(devices or "")}})
    if AdoptionKey.LANE in values:
        return _in_lane(share, values)
    if AdoptionKey.LANE_SWITCHING in values:
        switching = values[AdoptionKey.LANE_SWITCHING]
        raise _wrong(AdoptionKey.LANE_SWITCHING, switching, "no lane is stated")
    memory = values.get(AdoptionKey.MEMORY)
    if memory is None:
        return gpu
    with _about(AdoptionKey.MEMORY, values):
        limited = read_gpu({"gpu": {"memory": {"limit": memory}}})
        return replace(gpu, memory_mib=limited.memory_mib)


def _in_lane(share: str | None, values: KeyValues) -> GPURequest:
    """The share of a container that takes turns, with both parts of its memory."""
    memory = values[AdoptionKey.LANE]
    if share is None:
        raise _wrong(AdoptionKey.LANE, memory, "no share is stated")
    if AdoptionKey.MEMORY in values:
        raise _wrong(AdoptionKey.LANE, memory, "a memory is stated, too")
    persistent, _, ephemeral = memory.partition("+")
    lane = {"persistent": persistent, "ephemeral": ephemeral}
    with _about(AdoptionKey.LANE, values):
        gpu = read_gpu({"gpu": {**_fraction(share), "lane": lane}})
    if AdoptionKey.LANE_SWITCHING not in values:
        return gpu
    lane["switching"] = values[AdoptionKey.LANE_SWITCHING]
    with _about(AdoptionKey.LANE_SWITCHING, values):
        return read_gpu({"gpu": {**_fraction(share), "lane": lane}})


def _fraction(share: str) -> JsonObject:
    match = _SHARE.fullmatch(share)
    least, most = (match[1], match[2] or match[1]) if match else ("", "")
    bounds = {"minPercent": _number(least), "maxPercent": _number(most)}
    return {"mode": GPUMode.FRACTIONAL.value, "share": bounds}


def _number(digits: str) -> int:
    return int(digits) if _NUMBER.fullmatch(digits) else _TOO_FAR


def _members(values: KeyValues) -> int:
    """Pods of the gang; 1 = the pod stands alone."""
    size = values.get(AdoptionKey.GANG_SIZE)
    if AdoptionKey.GANG not in values:
        if size is not None:
            raise _wrong(AdoptionKey.GANG_SIZE, size, "no gang is named")
        return 1
    if size is None:
        raise _wrong(AdoptionKey.GANG, values[AdoptionKey.GANG], "its size is missing")
    count = _number(size)
    if not 1 <= count <= MOST_PODS:
        raise _wrong(AdoptionKey.GANG_SIZE, size, f"it is no number from 1 to {MOST_PODS}")
    return count


def _objectives(values: KeyValues) -> tuple[float | None, LatencyObjective | None]:
    """Maximum slowdown, or a latency; one of them or neither."""
    slowdown, latency = values.get(AdoptionKey.MAX_SLOWDOWN), values.get(AdoptionKey.LATENCY_MS)
    if latency is None:
        for key in (AdoptionKey.PERCENTILE, AdoptionKey.METRIC):
            if key in values:
                raise _wrong(key, values[key], "no latency is stated")
    elif slowdown is not None:
        raise _wrong(AdoptionKey.MAX_SLOWDOWN, slowdown, "a latency is stated, too")
    if slowdown is not None:
        with _about(AdoptionKey.MAX_SLOWDOWN, values):
            return read_training_slo({"maxSlowdown": slowdown}).max_slowdown, None
    if latency is None:
        return None, None
    slo: dict[str, object] = {"latencyMs": _number(latency)}
    metric = values.get(AdoptionKey.METRIC)
    if metric is not None:
        if not _METRIC.fullmatch(metric):
            raise _wrong(AdoptionKey.METRIC, metric, "it is no name of a metric")
        slo["metric"] = metric
    if AdoptionKey.PERCENTILE not in values:
        with _about(AdoptionKey.LATENCY_MS, values):
            return None, read_latency_slo(slo).objective()
    with _about(AdoptionKey.PERCENTILE, values):
        return None, read_latency_slo(
            slo | {"percentile": values[AdoptionKey.PERCENTILE]}
        ).objective()


def _flag(values: KeyValues) -> bool:
    checkpoint = values.get(AdoptionKey.CHECKPOINT, "false")
    if checkpoint not in ("true", "false"):
        raise _wrong(AdoptionKey.CHECKPOINT, checkpoint, "it is neither true nor false")
    return checkpoint == "true"


def _inject(values: KeyValues) -> bool | None:
    stated = values.get(AdoptionKey.INJECT)
    if stated is None:
        return None
    if stated not in (Inject.AUTO, Inject.NEVER):
        raise _wrong(AdoptionKey.INJECT, stated, "it is neither Auto nor Never")
    return stated == Inject.AUTO


def _stragglers(values: KeyValues) -> StragglerPolicy | None:
    stated = values.get(AdoptionKey.STRAGGLERS)
    if stated is None:
        return None
    if stated not in tuple(StragglerPolicy):
        remark = "it is neither Disabled nor Observe nor Rebalance"
        raise _wrong(AdoptionKey.STRAGGLERS, stated, remark)
    return StragglerPolicy(stated)


def _as_template(meta: Meta, spec: JsonObject, values: KeyValues) -> JsonObject:
    """The pod as a template with its device container first, from which its class follows."""
    class_name = values.get(AdoptionKey.CLASS, "")
    if class_name and not is_domain(class_name):
        raise _wrong(AdoptionKey.CLASS, class_name, "it is no name of a class")
    labels = dict(meta.labels)
    if class_name:
        labels[AdoptionKey.CLASS.key] = class_name
    container = objects(spec, "containers")[device_container(meta, spec)]
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def _check_prepared(meta: Meta, spec: JsonObject, record: PodRecord, gpu: GPURequest) -> None:
    """Check that admission prepared the pod: without slots its container would see no device.

    Raises:
        WireError: it did not.
    """
    named = meta.annotations.get(AdoptionKey.CONTAINER.key)
    containers = objects(spec, "containers")
    if named is not None and named not in [container.get("name") for container in containers]:
        raise _wrong(AdoptionKey.CONTAINER, named, "there is no container of that name")
    chosen = device_container(meta, spec)
    for index, container in enumerate(containers):
        slots = read_amounts(section(container, "resources"), "limits").get(SLOT_RESOURCE, 0)
        wanted = gpu.count if index == chosen else 0
        if slots != wanted:
            raise WireError(
                f"containers[{index}] has {slots} of {SLOT_RESOURCE} instead of {wanted}: create"
                " the pod again where the admission policy of Ullage is installed"
            )
    if not record.node and GATE not in record.gates and not record.stage.finished:
        _check_let_go(spec)


def _check_let_go(spec: JsonObject) -> None:
    """Check that a pod without our gate was pinned when the gate was removed."""
    affinity = section(section(spec, "affinity"), "nodeAffinity")
    if not affinity.get("requiredDuringSchedulingIgnoredDuringExecution"):
        raise WireError(
            f"it was created without the gate {GATE}: create the pod again where the admission"
            " policy of Ullage is installed"
        )
