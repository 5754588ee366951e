# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Kueue's objects, as a platform team and its users write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from e2e.stack import Json, Stack
from neighbours.controllers import KUEUE

QUEUE: Final = "kueue.x-k8s.io/queue-name"
GROUP: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
GATE: Final = "kueue.x-k8s.io/admission"
VERSION: Final = "kueue.x-k8s.io/v1beta2"


def flavor(name: str, labels: Mapping[str, str]) -> Json:
    """A ResourceFlavor of the nodes with these labels."""
    spec = {"nodeLabels": dict(labels)} if labels else {}
    return {
        "apiVersion": VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def cluster_queue(name: str, flavor_name: str, quota: Mapping[str, Any]) -> Json:
    """A ClusterQueue of one flavor for all namespaces.

    Args:
        name: Its own.
        flavor_name: Of its ResourceFlavor.
        quota: Nominal quota by resource.
    """
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    group = {
        "coveredResources": list(quota),
        "flavors": [{"name": flavor_name, "resources": resources}],
    }
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }


def local_queue(name: str, namespace: str) -> Json:
    """A LocalQueue of the ClusterQueue of its name."""
    return {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": name},
    }


def narrow_to(stack: Stack, labels: Mapping[str, str]) -> None:
    """Let Kueue's webhooks for pods see namespaces with these labels only, as our guide advises."""
    for kind in ("mutating", "validating"):
        kinds, name = f"{kind}webhookconfigurations", KUEUE.configuration_name(kind)
        body = stack.get(kinds, name)
        assert body is not None
        for webhook in body["webhooks"]:
            if webhook.get("namespaceSelector"):
                webhook["namespaceSelector"] = {"matchLabels": dict(labels)}
        stack.cluster.kubectl("replace", "--filename", "-", stdin=json.dumps(body))


def applied(stack: Stack, body: Json) -> bool:
    """Whether the API server took it; a webhook that has just started may not answer yet."""
    done = stack.cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(body), check=False)
    return done.returncode == 0
