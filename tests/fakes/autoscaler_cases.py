# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that autoscalers buy a node for, and pods that they refuse: one list for fakes and the real.

Each has a pool of its own, whose nodes have these labels; nothing is there yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fakes.cluster_autoscaler_rules import TEMPLATE
from fakes.karpenter_rules import CAPACITY_TYPE, HOSTNAME, NODEPOOL
from fakes.node_affinity import PREFERRED, REQUIRED
from ullage.api.labels import LABEL_NODE, LABEL_REGISTERED

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod beside its selector of the pool.

    Attributes:
        name: Of the pod, and of its pool.
        karpenter: Whether Karpenter buys for it.
        cluster_autoscaler: Whether cluster-autoscaler does, where the group is empty.
        selector: Labels that it selects nodes by.
        terms: Of its required node affinity; each is a list of expressions.
        preferred: Of its preferred node affinity, by weight.
        fields: Of the first term, what it requires of the node's fields.
    """

    name: str
    karpenter: bool
    cluster_autoscaler: bool
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: Sequence[Sequence[Json]] = ()
    preferred: Mapping[int, Sequence[Json]] = field(default_factory=dict)
    fields: Sequence[Json] = ()

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the pool's nodes."""
        return {NODEPOOL: self.name, CAPACITY_TYPE: "spot", LABEL_NODE: "true"}

    def pod(self, namespace: str) -> Json:
        """It runs nothing."""
        terms: list[Json] = [{"matchExpressions": list(one)} for one in self.terms]
        if self.fields:
            terms.append({"matchFields": list(self.fields)})
        affinity: Json = {
            PREFERRED: [
                {"weight": weight, "preference": {"matchExpressions": list(stated)}}
                for weight, stated in self.preferred.items()
            ]
        }
        if terms:
            affinity[REQUIRED] = {"nodeSelectorTerms": terms}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "nodeSelector": {NODEPOOL: self.name, **self.selector},
                "affinity": {"nodeAffinity": affinity},
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
                    }
                ],
            },
        }


def has(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def lacks(key: str) -> Json:
    return {"key": key, "operator": "DoesNotExist"}


CASES: Final = (
    Case(name="plain", karpenter=True, cluster_autoscaler=True),
    Case(
        name="request",
        karpenter=True,
        cluster_autoscaler=True,
        terms=[[lacks(LABEL_REGISTERED)]],
    ),
    Case(
        name="request-of-either",
        karpenter=True,
        cluster_autoscaler=True,
        terms=[[lacks(LABEL_REGISTERED)], [{"key": TEMPLATE, "operator": "Exists"}]],
    ),
    Case(
        name="second-term",
        karpenter=True,
        cluster_autoscaler=True,
        terms=[[has("example.com/unknown", "x")], [has(LABEL_NODE, "true")]],
    ),
    Case(
        name="unknown-label",
        karpenter=False,
        cluster_autoscaler=False,
        terms=[[has("example.com/unknown", "x")]],
    ),
    Case(
        name="other-value", karpenter=False, cluster_autoscaler=False, selector={LABEL_NODE: "no"}
    ),
    Case(
        name="host-name",
        karpenter=False,
        cluster_autoscaler=True,
        terms=[[{"key": HOSTNAME, "operator": "NotIn", "values": ["node-1"]}]],
    ),
    Case(
        name="host-name-in-a-later-term",
        karpenter=False,
        cluster_autoscaler=True,
        terms=[
            [has(LABEL_NODE, "true")],
            [{"key": HOSTNAME, "operator": "NotIn", "values": ["node-1"]}],
        ],
    ),
    Case(
        name="node-name",
        karpenter=False,
        cluster_autoscaler=True,
        fields=[{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}],
    ),
    Case(
        name="restricted-domain",
        karpenter=False,
        cluster_autoscaler=True,
        terms=[[lacks("karpenter.sh/registered")]],
    ),
    Case(
        name="restricted-subdomain",
        karpenter=False,
        cluster_autoscaler=True,
        terms=[[lacks("compatibility.karpenter.sh/provider")]],
    ),
    Case(
        name="capacity-type",
        karpenter=False,
        cluster_autoscaler=False,
        terms=[[has(CAPACITY_TYPE, "cheap")]],
    ),
    Case(
        name="preferred-host-name",
        karpenter=True,
        cluster_autoscaler=True,
        preferred={1: [has(HOSTNAME, "node-1")]},
    ),
    Case(
        name="preferred-unknown-label",
        karpenter=True,
        cluster_autoscaler=True,
        preferred={1: [has("example.com/unknown", "x")]},
    ),
    Case(
        # terms are given up before the preference is, so that only the last one is tried without it
        name="preference-outlives-a-term",
        karpenter=False,
        cluster_autoscaler=True,
        terms=[[has(LABEL_NODE, "true")], [has("example.com/unknown", "x")]],
        preferred={1: [has("example.com/other", "x")]},
    ),
)
