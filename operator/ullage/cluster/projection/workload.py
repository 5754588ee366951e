# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingJobs and InferenceDeployments.

The API server applied schema, defaults and rules; an unreadable object never stops the stream: the
last good record stays and reports the error of the newest version. A TrainingJob runs a trial if
the operator's labels match its name, because names of trials are fixed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Final
from weakref import WeakValueDictionary

from ullage.api.inferencedeployment import read_service_spec
from ullage.api.labels import (
    ANNOTATION_TRIAL_EPOCH,
    ANNOTATION_TRIAL_PARAMETERS,
    LABEL_CLASS,
    LABEL_FAMILY,
    LABEL_TRIAL,
)
from ullage.api.podtemplate import Runtime
from ullage.api.readers import WireError, objects, section
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import default_trust_domain
from ullage.api.trainingjob import read_training_spec
from ullage.api.tuningjob import LONGEST_VALUE, MOST_PARAMETERS
from ullage.cluster.codecs.objects import Meta, Sharer, identity, optional_whole, string_map, within
from ullage.cluster.codecs.status import status_from_wire
from ullage.cluster.projection.pod_rules import pod_rules
from ullage.cluster.projection.pod_shape import pod_shape
from ullage.cluster.projection.pod_template import Blueprint, canonical_json, template_hash
from ullage.cluster.projection.spec import check_name, elasticity_of, scaling_of, with_lane
from ullage.cluster.projection.template import (
    check_declared,
    check_depth,
    check_size,
    check_template,
)
from ullage.cluster.projection.workload_class import class_key, family_key
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import TrialOf, WorkloadKind, WorkloadRecord
from ullage.cluster.values.names import number_of, trial_run_name
from ullage.cluster.values.readable import complaint, complete
from ullage.ports import JsonObject


def _reference(kind: WorkloadKind, meta: Meta) -> ObjectRef:
    return ObjectRef(kind=kind.value, namespace=meta.namespace, name=meta.name, uid=meta.uid)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class _Template:
    """A pod template and the data read from it."""

    json: str
    labels: frozenset[tuple[str, str]]
    """Labels of the owner: they name class and family where the template does not."""
    shape: PodShape
    version: str
    priority: int
    ports: tuple[int, ...]
    """Of the first container; 0 = one that is not stated."""
    workload_class: str
    family: str
    plain: bool
    """No other controller and no other pod has a say in where its pods go, or when."""


_JUDGED_BY_OTHERS: Final = (
    "affinity",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "workloadRef",
)
"""Fields of a pod by which others complete it or hold it back, or which its pin would narrow."""
_QUEUEING_GROUPS: Final = frozenset({"kueue.x-k8s.io"})
"""Groups of labels by which a queueing controller holds pods back with gates of its own."""

_Key = tuple[WorkloadKind, bytes, int, frozenset[tuple[str, str]]]
_TEMPLATES: Final[WeakValueDictionary[_Key, _Template]] = WeakValueDictionary()
"""By kind, hash, slots and labels: parsed once, however many workloads and status events share it.

Bounded by what exists: the blueprints hold the templates, and an edited or deleted one goes."""


def _read_template(
    kind: WorkloadKind, template: JsonObject, slots: int, labels: frozenset[tuple[str, str]]
) -> _Template:
    """Read a template, or look it up.

    Raises:
        WireError: it is too deep or too long, has no containers, or a field is malformed.
    """
    check_declared(kind, template)
    check_depth(template, "template")
    template_json = canonical_json(template)
    key = (kind, hashlib.sha256(template_json.encode()).digest(), slots, labels)
    parsed = _TEMPLATES.get(key)
    if parsed is None:
        check_size(template_json, "template")
        with within("template"):
            check_template(template)
            parsed = _TEMPLATES[key] = _parsed(template_json, slots, labels)
    return parsed


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
        plain=_is_plain_template(template),
    )


def _is_plain_template(template: JsonObject) -> bool:
    """True if pods of a template may be created in a place that was decided before they exist.

    What an admission plugin or another controller adds to a pod is not known before it exists.
    """
    spec = section(template, "spec")
    labels = string_map(section(template, "metadata"), "labels")
    if any(spec.get(field) for field in _JUDGED_BY_OTHERS):
        return False
    if any(key.partition("/")[0] in _QUEUEING_GROUPS for key in labels):
        return False
    try:
        return pod_rules(spec, namespace="", name="", labels=labels) is None
    except WireError:  # the API server refuses such pods, and says so
        return False


def read_status(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status read back.

    Raises:
        WireError: it is malformed.
    """
    with within("status"):
        return status_from_wire(kind, section(raw, "status"))


def _template(
    kind: WorkloadKind, stated: JsonObject, meta: Meta, slots: int, known: Blueprint | None
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
    return _read_template(kind, stated, slots, labels)


def _job(
    meta: Meta, raw: JsonObject, status: WorkloadStatus, share: Sharer, known: Blueprint | None
) -> tuple[WorkloadRecord, Blueprint]:
    spec = read_training_spec(raw)
    gpu = with_lane(spec.gpu, "spec.gpu")
    with within("spec"):
        template = _template(WorkloadKind.TRAINING_JOB, spec.template, meta, gpu.count, known)
        elasticity = share(elasticity_of(spec))
    terms = spec.data.io
    runtime = (
        replace(spec.runtime, loader=str(terms.max_workers)) if terms.autotune else spec.runtime
    )
    record = WorkloadRecord(
        ref=share(_reference(WorkloadKind.TRAINING_JOB, meta)),
        kind=WorkloadKind.TRAINING_JOB,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        shape=share(template.shape),
        template_hash=share(_version(template, runtime, spec.stragglers.policy)),
        stragglers=spec.stragglers.policy,
        replace_after_s=spec.stragglers.replace_after_s,
        # of an elastic job the last decided size
        replicas=elasticity.within(status.replicas) if elasticity else spec.replicas or 1,
        elasticity=elasticity,
        gpu=share(gpu),
        accelerators=share(spec.accelerators),
        mixed_accelerators=spec.mixed_accelerators,
        trust_domain=share(spec.trust_domain or default_trust_domain(meta.namespace)),
        profile_ref=share(spec.profile_ref),
        weight=spec.weight,
        tenant=share(spec.tenant),
        priority=template.priority,
        plain=template.plain,
        suspend=spec.suspend,
        max_slowdown=spec.slo.max_slowdown if spec.slo else None,
        min_throughput=spec.slo.min_throughput if spec.slo else None,
        sharing=share(spec.sharing),
        workload_class=share(template.workload_class),
        family=share(template.family),
        work_steps=spec.work.steps if spec.work else 0,
        cost=share(spec.cost),
        checkpoint=spec.checkpoint is not None,
        failure=share(spec.failure_policy),
        ttl_seconds_after_finished=spec.ttl_seconds_after_finished,
        has_port=True,
        trial=read_trial(meta),
        status=status,
    )
    grace_s = spec.checkpoint.grace_s if spec.checkpoint else 0
    return record, _blueprint(record, template, grace_s=grace_s, runtime=runtime)


def _service(
    meta: Meta, raw: JsonObject, status: WorkloadStatus, share: Sharer, known: Blueprint | None
) -> tuple[WorkloadRecord, Blueprint]:
    spec = read_service_spec(raw)
    gpu = with_lane(spec.gpu, "spec.gpu")
    with within("spec"):
        template = _template(
            WorkloadKind.INFERENCE_DEPLOYMENT, spec.template, meta, gpu.count, known
        )
    batching = spec.batching
    if batching is not None and batching.grpc_port in template.ports[:1]:
        first = f"{batching.grpc_port} is the first port of the first container"
        raise WireError(f"spec.batching.grpcPort: {first}, which the Service has for HTTP")
    record = WorkloadRecord(
        ref=share(_reference(WorkloadKind.INFERENCE_DEPLOYMENT, meta)),
        kind=WorkloadKind.INFERENCE_DEPLOYMENT,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        shape=share(template.shape),
        template_hash=share(_version(template, spec.runtime)),
        replicas=spec.replicas,
        gpu=share(gpu),
        accelerators=share(spec.accelerators),
        trust_domain=share(spec.trust_domain or default_trust_domain(meta.namespace)),
        profile_ref=share(spec.profile_ref),
        priority=template.priority,
        slo=share(spec.slo.objective()) if spec.slo else None,
        batching=share(batching),
        load=spec.load,
        scaling=share(scaling_of(spec)),
        sharing=share(spec.sharing),
        workload_class=share(template.workload_class),
        family=share(template.family),
        has_port=bool(template.ports),
        status=status,
    )
    return record, _blueprint(record, template, grace_s=0, runtime=spec.runtime)


_NO_ADDITIONS: Final = Runtime()


def _version(
    template: _Template, runtime: Runtime, stragglers: StragglerPolicy = StragglerPolicy.OBSERVE
) -> str:
    """The version of a workload's pods: those with additions of Ullage differ."""
    rebalances = stragglers is StragglerPolicy.REBALANCE
    if runtime == _NO_ADDITIONS and not rebalances:
        return template.version
    additions = {
        part.name: getattr(runtime, part.name)
        for part in fields(runtime)
        if getattr(runtime, part.name) != getattr(_NO_ADDITIONS, part.name)
    }
    if rebalances:
        additions["stragglers"] = stragglers.value
    return template_hash(f"{template.version} {additions}", 0)


def _blueprint(
    record: WorkloadRecord, template: _Template, *, grace_s: int, runtime: Runtime
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
        grace_s=grace_s,
        runtime=runtime,
        rebalances=record.stragglers is StragglerPolicy.REBALANCE,
        tiers=elasticity.tiers if elasticity is not None else None,
        least=elasticity.min_replicas if elasticity is not None else 0,
    )


def unreadable(
    kind: WorkloadKind, meta: Meta, error: Exception, before: WorkloadRecord | None
) -> WorkloadRecord:
    """The record of an object whose newest version cannot be read.

    With an earlier good record its spec stays in force; without one the record has only its
    identity: no containers, nothing to place. Either way ``invalid`` has the error.
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

    ``before`` and ``known`` are the results of the last read.

    Raises:
        WireError: not even the metadata can be read, so no condition can be set on the object.
    """
    meta = identity(raw)
    try:
        status = read_status(kind, raw)
    except Exception as error:  # any error concerns only this object
        return unreadable(kind, meta, error, before), None
    try:
        complete(raw)
        check_name(meta.name)
        spec = section(raw, "spec")
        if kind is WorkloadKind.TRAINING_JOB:
            return _job(meta, spec, status, share, known)
        return _service(meta, spec, status, share, known)
    except Exception as error:  # as above
        return replace(unreadable(kind, meta, error, before), status=status), None


TUNING_KIND: Final = "TuningJob"
_LONGEST_PARAMETERS: Final = 8_192


def read_trial(meta: Meta) -> TrialOf | None:
    """The trial; ``None`` = the TrainingJob runs none.

    Args:
        meta: Metadata of a TrainingJob.
    """
    tuning = meta.controller
    if tuning is None or not tuning.ours or tuning.kind != TUNING_KIND:
        return None
    trial = number_of(meta.labels.get(LABEL_TRIAL, ""))
    until_epoch = number_of(meta.annotations.get(ANNOTATION_TRIAL_EPOCH, ""))
    if trial < 0 or until_epoch < 1:
        return None
    if meta.name != trial_run_name(tuning.name, trial, until_epoch):
        return None
    return TrialOf(
        tuning_uid=tuning.uid,
        trial=trial,
        until_epoch=until_epoch,
        parameters=_trial_parameters(meta.annotations.get(ANNOTATION_TRIAL_PARAMETERS, "")),
    )


def _trial_parameters(stated: str) -> tuple[tuple[str, str], ...]:
    """Parameters as the operator wrote them; none where they are no longer readable."""
    if not stated or len(stated) > _LONGEST_PARAMETERS:
        return ()
    try:
        parameters = json.loads(stated)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(parameters, dict) or len(parameters) > MOST_PARAMETERS:
        return ()
    if not all(_is_plain(name) and _is_plain(value) for name, value in parameters.items()):
        return ()
    return tuple(sorted(parameters.items()))


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_VALUE and value.isprintable()
