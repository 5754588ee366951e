# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""ProfileRequests from the API."""

from __future__ import annotations

import contextlib
from typing import Final

from ullage.api.profilerequest import ALL, SAMPLE, ProfileRequestSpec, read_profile_request_spec
from ullage.api.readers import JsonObject, WireError, objects, section, text
from ullage.api.traces import MAX_TRACES, DesiredTrace, ObservedTrace
from ullage.api.words import TracedKind
from ullage.cluster.codecs.objects import read_meta, within
from ullage.cluster.codecs.status import profile_request_status_from_wire
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.trace import NodeTraces, ProfileRequestRecord
from ullage.ports import PROFILE_REQUEST

_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_LABELS: Final = {
    TracedKind.JOB: "batch.kubernetes.io/job-name",
    TracedKind.JOB_SET: _JOB_SET,
    TracedKind.PYTORCH_JOB: "training.kubeflow.org/job-name",
    TracedKind.TRAIN_JOB: _JOB_SET,
}
"""Label by which the controller of a kind marks pods of a job; a TrainJob runs as a JobSet of its
name."""


def project_profile_request(raw: JsonObject) -> ProfileRequestRecord:
    """Read a ProfileRequest.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    with within("status"):
        status = profile_request_status_from_wire(section(raw, "status"))
    spec = read_profile_request_spec(section(raw, "spec"))
    job = spec.job_ref
    listed = () if spec.ranks in (ALL, SAMPLE) else spec.ranks.split(",")
    return ProfileRequestRecord(
        ref=ObjectRef(
            kind=PROFILE_REQUEST.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
        ),
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        job_kind=job.kind.value if job is not None else "",
        job_name=job.name if job is not None else "",
        labels=_labels(spec),
        ranks=tuple(sorted({int(rank) for rank in listed})) or None,
        sample=spec.ranks == SAMPLE,
        steps=spec.steps,
        stacks=spec.stacks,
        shapes=spec.shapes,
        ttl_s=spec.ttl_seconds_after_finished,
        status=status,
    )


def _labels(spec: ProfileRequestSpec) -> tuple[tuple[str, str], ...]:
    """Labels of the pods; none for a TrainingJob, whose pods are known by their owner."""
    if spec.pod_selector is not None:
        return tuple(sorted(spec.pod_selector.match_labels.items()))
    label = JOB_LABELS.get(spec.job_ref.kind) if spec.job_ref is not None else None
    return ((label, spec.job_ref.name),) if label and spec.job_ref is not None else ()


def project_node_traces(raw: JsonObject) -> NodeTraces:
    """Read orders and reports of a GPUNode.

    Unreadable entries are skipped: what waits for one ends by its time.

    Raises:
        WireError: a section is malformed.
    """
    orders: list[DesiredTrace] = []
    reports: list[ObservedTrace] = []
    for entry in objects(section(raw, "spec"), "traces")[:MAX_TRACES]:
        with contextlib.suppress(WireError):
            orders.append(DesiredTrace.from_wire(entry))
    for entry in objects(section(raw, "status"), "traces")[:MAX_TRACES]:
        with contextlib.suppress(WireError):
            reports.append(ObservedTrace.from_wire(entry))
    return NodeTraces(
        uid=text(section(raw, "metadata"), "uid"), orders=tuple(orders), reports=tuple(reports)
    )
