# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage status`` reads pods that share devices by a label beside our own kinds."""

from __future__ import annotations

from builders_raw import raw_adopted_pod, raw_job
from fakes.apiserver import FakeApiServer
from ullage import ports
from ullage.cli.look import WORKLOADS, inside, snapshot_of, workloads
from ullage.cluster.values.streams import PODS
from ullage.kube.client import K8sCluster


async def test_labelled_pods_of_the_namespace_are_workloads(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.put(ports.TRAINING_JOB, raw_job("train"))
    api.put(ports.POD, raw_adopted_pod("web-1"))
    seen = await snapshot_of(cluster, inside((*WORKLOADS, PODS), "default"))
    found = [(one.kind.value, one.ref.name) for one in workloads(seen)]
    assert found == [("TrainingJob", "train"), ("Pod", "web-1")]
    elsewhere = await snapshot_of(cluster, inside((*WORKLOADS, PODS), "other"))
    assert workloads(elsewhere) == []
