# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import builders
from ullage.api.reasons import Reason
from ullage.app.foreign_pods import ForeignPodReporter
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import ForeignPod

EPOCH = builders.EPOCH


def foreign(name: str, namespace: str, job: str = "train") -> ForeignPod:
    claims = ObjectRef(kind="TrainingJob", namespace=namespace, name=job, uid="")
    return ForeignPod(namespace=namespace, name=name, claims=claims, why="no controller owns it")


def test_the_claimed_workload_hears_of_a_pod_of_its_own_namespace_once() -> None:
    job = builders.a_job("train")
    snapshot = builders.a_snapshot(job)
    reporter = ForeignPodReporter()
    pods = {"a": foreign("train-x", "default"), "b": foreign("train-y", "default")}
    (event,) = reporter.report(snapshot, pods, EPOCH)
    assert event.target == job.build().ref
    assert event.reason is Reason.FOREIGN_POD
    assert event.text.startswith("the pod train-x (and 1 more) claims to be of this workload")
    assert reporter.report(snapshot, pods, EPOCH) == ()


def test_another_namespace_hears_nothing() -> None:
    snapshot = builders.a_snapshot(builders.a_job("train"))
    pods = {"a": foreign("train-0", "tenant-b")}
    assert ForeignPodReporter().report(snapshot, pods, EPOCH) == ()


def test_a_pod_that_comes_again_is_told_again() -> None:
    snapshot = builders.a_snapshot(builders.a_job("train"))
    reporter = ForeignPodReporter()
    pods = {"a": foreign("train-x", "default")}
    assert reporter.report(snapshot, pods, EPOCH)
    assert reporter.report(snapshot, {}, EPOCH) == ()
    assert reporter.report(snapshot, pods, EPOCH)
