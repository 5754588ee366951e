# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of other controllers are found by their labels, and one without the hook says so at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_gpu_node, a_pod, a_slice, a_snapshot, an_adopted
from fakes.trace_world import BEGAN, a_request
from ullage.api.reasons import Reason
from ullage.api.words import TracedKind
from ullage.cluster.projection.trace import JOB_LABELS
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.scheduling.observation.profile_requests import TraceInputs, next_status
from ullage.scheduling.observation.traced_pods import TracedTarget, target_of

INDEX = "batch.kubernetes.io/job-completion-index"


def of_kind(kind: TracedKind, *, inject: bool | None, index: str = "1") -> TracedTarget:
    """A pod of a job of this kind, as the operator sees it; ``None`` = it has no slice."""
    labels = (("app", "digits"), (JOB_LABELS[kind], "digits"), (INDEX, index))
    unit = an_adopted("digits-1").build()
    pod = a_pod("digits-1", owner=unit, stage=PodStage.RUNNING, node="node-1", rank=-1)
    pod = replace(pod, labels=labels)
    held = [] if inject is None else [replace(a_slice(pod, percent=30), inject=inject)]
    snapshot = a_snapshot(unit, pod, a_gpu_node(devices=1, desired=held))
    return target_of(_request(kind), snapshot, [pod, _stranger(pod)], lambda _: True)


def _request(kind: TracedKind) -> ProfileRequestRecord:
    return a_request(job_kind=kind.value, labels=((JOB_LABELS[kind], "digits"),))


def _stranger(pod: PodRecord) -> PodRecord:
    return replace(pod, uid="other", name="other", labels=(("app", "digits"),))


@pytest.mark.parametrize("kind", sorted(JOB_LABELS))
def test_pods_of_a_job_are_those_that_its_controller_marks(kind: TracedKind) -> None:
    target = of_kind(kind, inject=True)
    assert [pod.name for pod in target.pods] == ["digits-1"]
    assert (target.exists, target.ended, target.instrumented) == (True, False, True)
    # only a plain Job numbers all of its pods: each Job of a JobSet begins with 0 again
    assert target.pods[0].rank == (1 if kind is TracedKind.JOB else None)


@pytest.mark.parametrize("index", ["", "x", "-1", "999999", "\u0661"])
def test_an_index_that_is_none_is_left_out(index: str) -> None:
    assert of_kind(TracedKind.JOB, inject=True, index=index).pods[0].rank is None


def test_a_pod_without_a_slice_is_asked_itself() -> None:
    assert of_kind(TracedKind.JOB_SET, inject=None).instrumented is None


def test_pods_without_the_label_say_at_once_which_line_to_add() -> None:
    target = of_kind(TracedKind.PYTORCH_JOB, inject=False)
    status = next_status(
        _request(TracedKind.PYTORCH_JOB), TraceInputs(now=BEGAN + 1, target=target)
    )
    assert (status.phase, status.conditions[0].reason) == ("Failed", Reason.NOT_INSTRUMENTED)
    assert "PyTorchJob digits has the label ullage.dev/inject: Auto" in status.message
