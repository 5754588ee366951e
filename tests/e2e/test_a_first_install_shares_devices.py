# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of the first page, as printed, lead to a Deployment and a Job that share devices.

The name makes it the first: it installs Ullage on a cluster that has never seen it.
"""

from __future__ import annotations

import json

from demo.cluster import LocalCluster
from demo.first_install import first_share, remove_example
from demo.install import NAMESPACE, devices_offered, uninstall


def test_the_printed_commands_lead_to_a_share(cluster: LocalCluster) -> None:
    if "ullage" in cluster.helm("list", "--namespace", NAMESPACE, "--short").split():
        uninstall(cluster)  # a kept cluster
        cluster.helm("uninstall", "ullage-crds", "--namespace", NAMESPACE)
    try:
        found = first_share(cluster)
        devices_offered(cluster)
        assert len(found.commands) == 3
        nodes = json.loads(cluster.kubectl("get", "gpunodes", "--output", "json").stdout)["items"]
        slices = [held["podName"] for node in nodes for held in node["spec"]["slices"]]
        assert sorted(slices) == sorted(found.pods.values())
    finally:
        remove_example(cluster)
