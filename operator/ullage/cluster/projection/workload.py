# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingJobs and InferenceDeployments.

Schema, defaults and rules were applied by the API server; what still cannot be read never stops
the stream: the last good record stays and says what is wrong with the newest version.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

from ullage.api.contract import (
    LABEL_CLASS,
    LABEL_FAMILY,
    WireError,
    default_trust_domain,
    flag,
    objects,
    section,
)
from ullage.cluster.codecs.objects import (
    Meta,
    Sharer,
    bounded,
    identity,
    optional_whole,
    within,
    word,
)
from ullage.cluster.codecs.status import status_from_wire
from ullage.cluster.projection.pod_shape import pod_shape
from ullage.cluster.projection.pod_template import Blueprint, canonical_json, template_hash
from ullage.cluster.projection.spec import (
    check_name,
    check_whole,
    read_accelerators,
    read_batching,
    read_cost,
    read_elasticity,
    read_failure,
    read_gpu,
    read_grace_s,
    read_inject,
    read_latency,
    read_load,
    read_objectives,
    read_scaling,
    read_sharing,
    read_steps,
    read_trust_domain,
)
from ullage.cluster.projection.template import (
    INT32_MAX,
    check_depth,
    check_lengths,
    check_size,
    check_template,
)
from ullage.cluster.projection.trial import read_trial
from ullage.cluster.projection.workload_class import class_key, family_key
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.snapshot import ObjectRef, WorkloadKind, WorkloadRecord
from ullage.cluster.records.spec_fields import MOST_REPLICAS, MOST_SERVING, Elasticity
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.values.readable import complaint, complete
from ullage.ports import JsonObject


def _members(
    kind: WorkloadKind, spec: JsonObject, elasticity: Elasticity | None, status: WorkloadStatus
) -> int:
    """Members wanted now: as stated, of an elastic job the last size that was decided."""
    if elasticity is not None:
        return elasticity.within(status.replicas)
    if kind is WorkloadKind.INFERENCE_DEPLOYMENT:
        return bounded(spec, "replicas", 0, MOST_SERVING, 1)
    return bounded(spec, "replicas", 1, MOST_REPLICAS, 1)


def _reference(kind: WorkloadKind, meta: Meta) -> ObjectRef:
    return ObjectRef(kind=kind.value, namespace=meta.namespace, name=meta.name, uid=meta.uid)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class _Template:
    """A pod template and what is read from it."""

    json: str
    labels: frozenset[tuple[str, str]]
    """Of the owner: they name class and family where the template does not."""
    shape: PodShape
    version: str
    priority: int
    ports: tuple[int, ...]
    """Of the first container; 0 = one that is not stated."""
    workload_class: str
    family: str


_Key = tuple[WorkloadKind, bytes, int, frozenset[tuple[str, str]]]
_TEMPLATES: Final[WeakValueDictionary[_Key, _Template]] = WeakValueDictionary()
"""By kind, hash, slots and labels: read once, however many workloads and status events bear it.

Bounded by what exists: the blueprints hold the templates, and an edited or deleted one goes."""


def _read_template(
    kind: WorkloadKind, template: JsonObject, slots: int, labels: frozenset[tuple[str, str]]
) -> _Template:
    """Read a template, or find it read already.

    Raises:
        WireError: it is too deep or too long, has no containers, or something is malformed.
    """
    check_lengths(template, "template")
    check_depth(template, "template")
    template_json = canonical_json(template)
    key = (kind, hashlib.sha256(template_json.encode()).digest(), slots, labels)
    found = _TEMPLATES.get(key)
    if found is None:
        check_size(template_json, "template")
        with within("template"):
            check_template(kind, template)
            found = _TEMPLATES[key] = _parsed(template_json, slots, labels)
    return found


def _parsed(template_json: str, slots: int, labels: frozenset[tuple[str, str]]) -> _Template:
    template: JsonObject = json.loads(template_json)
    spec = section(template, "spec")
    return _Template(
        json=template_json,
        labels=labels,
        shape=pod_shape(spec, slots=slots),
        version=template_hash(template_json, slots),
        priority=optional_whole(spec, "priority"),
        ports=tuple(
            optional_whole(port, "containerPort")
            for port in objects(objects(spec, "containers")[0], "ports")
        ),
        workload_class=class_key(template, dict(labels)),
        family=family_key(template, dict(labels)),
    )


def read_status(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status as it was read back.

    Raises:
        WireError: it is malformed.
    """
    with within("status"):
        return status_from_wire(kind, section(raw, "status"))


def _template(
    kind: WorkloadKind, spec: JsonObject, meta: Meta, slots: int, known: Blueprint | None
) -> _Template:
    """The template of a workload; that of the same generation is not read again.

    The API server counts a generation for every change of the spec, and a status event of a large
    template would cost as much as an edit.
    """
    labels = frozenset((key, meta.labels.get(key, "")) for key in (LABEL_CLASS, LABEL_FAMILY))
    if known is not None and known.generation == meta.generation > 0 and known.slots == slots:
        kept = known.read
        if isinstance(kept, _Template) and kept.labels == labels:
            return kept
    if not isinstance(spec.get("template"), dict):
        raise WireError("template: missing; give the template of the pods")
    return _read_template(kind, section(spec, "template"), slots, labels)


def _record(
    kind: WorkloadKind,
    meta: Meta,
    spec: JsonObject,
    status: WorkloadStatus,
    share: Sharer,
    known: Blueprint | None,
) -> tuple[WorkloadRecord, Blueprint]:
    gpu = read_gpu(spec)
    template = _template(kind, spec, meta, gpu.count, known)
    training = kind is WorkloadKind.TRAINING_JOB
    elasticity = share(read_elasticity(spec)) if training else None
    inject = read_inject(spec)
    sharing, cost = read_sharing(spec), read_cost(spec) if training else None
    if training:
        check_whole(spec, cost, sharing, gpu)
    slo = None if training else share(read_latency(spec))
    batching = None if training else share(read_batching(spec))
    if batching is not None and batching.grpc_port in template.ports[:1]:
        first = f"{batching.grpc_port} is the first port of the first container"
        raise WireError(f"batching.grpcPort: {first}, which the Service has for HTTP")
    max_slowdown, min_throughput = read_objectives(spec) if training else (None, None)
    record = WorkloadRecord(
        ref=share(_reference(kind, meta)),
        kind=kind,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        shape=share(template.shape),
        template_hash=share(_version(template, inject=inject)),
        replicas=_members(kind, spec, elasticity, status),
        elasticity=elasticity,
        gpu=share(gpu),
        accelerators=share(read_accelerators(spec)),
        mixed_accelerators=flag(spec, "mixedAccelerators"),
        trust_domain=share(read_trust_domain(spec) or default_trust_domain(meta.namespace)),
        profile_ref=share(word(spec, "profileRef")),
        weight=bounded(spec, "weight", 1, 1000, 1),
        tenant=share(word(spec, "tenant")),
        priority=template.priority,
        suspend=flag(spec, "suspend"),
        max_slowdown=max_slowdown,
        min_throughput=min_throughput,
        slo=slo,
        batching=batching,
        load=None if training else read_load(spec),
        scaling=None if training else share(read_scaling(spec, slo, batching)),
        sharing=share(sharing),
        workload_class=share(template.workload_class),
        family=share(template.family),
        work_steps=read_steps(spec),
        cost=share(cost),
        checkpoint=spec.get("checkpoint") is not None,
        failure=share(read_failure(spec)),
        ttl_seconds_after_finished=(
            None
            if spec.get("ttlSecondsAfterFinished") is None
            else bounded(spec, "ttlSecondsAfterFinished", 0, INT32_MAX)
        ),
        has_port=training or bool(template.ports),
        trial=read_trial(meta) if training else None,
        status=status,
    )
    return record, _blueprint(record, spec, template, inject=inject)


def _version(template: _Template, *, inject: bool) -> str:
    """The version of a workload's pods: those with the step hook differ."""
    return template_hash(template.version, 0) if inject else template.version


def _blueprint(
    record: WorkloadRecord, spec: JsonObject, template: _Template, *, inject: bool
) -> Blueprint:
    """Template and identities for a workload's pods."""
    elasticity = record.elasticity
    return Blueprint(
        template_json=template.json,
        read=template,
        generation=record.generation,
        template_hash=record.template_hash,
        replicas=record.replicas,
        slots=record.gpu.count,
        grace_s=read_grace_s(spec),
        inject=inject,
        tiers=elasticity.tiers if elasticity is not None else None,
        least=elasticity.min_replicas if elasticity is not None else 0,
    )


def unreadable(
    kind: WorkloadKind, meta: Meta, error: Exception, before: WorkloadRecord | None
) -> WorkloadRecord:
    """The record of an object whose newest version cannot be read.

    With an earlier good record its spec stays in force; without one the record holds identity
    alone: no containers, nothing to place. Either way ``invalid`` says what is wrong.
    """
    text_ = complaint(error)
    if before is not None:
        return replace(
            before,
            generation=meta.generation,
            resource_version=meta.resource_version,
            deleting=meta.deleting,
            invalid=text_,
        )
    return WorkloadRecord(
        ref=_reference(kind, meta),
        kind=kind,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        shape=PodShape(device_container=""),
        template_hash="",
        trust_domain=default_trust_domain(meta.namespace),
        invalid=text_,
    )


def project_workload(
    kind: WorkloadKind,
    raw: JsonObject,
    before: WorkloadRecord | None,
    share: Sharer,
    known: Blueprint | None = None,
) -> tuple[WorkloadRecord, Blueprint | None]:
    """Read a workload; the blueprint is ``None`` where the spec cannot be read.

    ``before`` and ``known`` are what was read of it last.

    Raises:
        WireError: not even the metadata can be read, so nothing can be said of the object.
    """
    meta = identity(raw)
    try:
        status = read_status(kind, raw)
    except Exception as error:  # the seam of one object: whatever it is, it is about this one
        return unreadable(kind, meta, error, before), None
    try:
        complete(raw)
        check_name(meta.name)
        with within("spec"):
            return _record(kind, meta, section(raw, "spec"), status, share, known)
    except Exception as error:  # the seam of one object, as above
        return replace(unreadable(kind, meta, error, before), status=status), None
