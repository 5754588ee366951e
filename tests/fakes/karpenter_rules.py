# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""For which pods Karpenter 1.15 buys a node, and what it refuses.

Each rule names its source in sigs.k8s.io/karpenter v1.15.0; the contract test holds them to the
real one. Left out: claims of volumes, resource claims, limits and weights of NodePools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fakes.node_affinity import (
    expressions,
    preferred_terms,
    required_terms,
    satisfied,
    selector,
    tolerates,
)

Json = dict[str, Any]
HOSTNAME: Final = "kubernetes.io/hostname"
NODEPOOL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
"""pkg/apis/v1/nodeclaim_validation.go, SupportedNodeSelectorOps."""
NORMALISED: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""pkg/apis/v1/labels.go, NormalizedLabels."""
WELL_KNOWN: Final = (
    *NORMALISED.values(),
    NODEPOOL,
    CAPACITY_TYPE,
    "node.kubernetes.io/windows-build",
)
"""pkg/apis/v1/labels.go, WellKnownLabels: pods may name them although no NodePool does."""
CAPACITY_TYPES: Final = ("on-demand", "spot", "reserved")
"""pkg/apis/v1/labels.go, WellKnownValuesForRequirements."""
_NAME: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True)
class Karpenter:
    """Karpenter's scheduler."""

    def refusal(self, pod: Json) -> str:
        """Why nothing is bought for a pod, whatever NodePools there are; empty = it may be."""
        if not _failed_to_schedule(pod):
            return "kube-scheduler has not found it unschedulable"
        return next(_refusals(pod), "")

    def fits(self, pod: Json, fresh: Json, nodes: Sequence[Json]) -> bool:
        """Whether a NodePool's next node would take a pod.

        Args:
            pod: It waits.
            fresh: The node as the NodePool would make it.
            nodes: Those that are there; the template of a NodePool does not look at them.
        """
        # pkg/controllers/provisioning/scheduling/nodeclaim.go, CanAdd
        if not tolerates(pod, fresh.get("spec", {}).get("taints") or ()):
            return False
        labels = fresh["metadata"]["labels"]
        return any(all(_compatible(one, labels) for one in stated) for stated in _constraints(pod))


def _failed_to_schedule(pod: Json) -> bool:
    # pkg/utils/pod/scheduling.go, IsProvisionable: what a gate holds has another reason
    status = pod.get("status") or {}
    seen = any(
        one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
        for one in status.get("conditions") or ()
    )
    return seen and not pod["spec"].get("nodeName") and not status.get("nominatedNodeName")


def _refusals(pod: Json) -> Iterator[str]:
    # pkg/controllers/provisioning/provisioner.go, Validate: preferences are not looked at, but for
    # one that excludes Karpenter's nodes
    terms, preferred = required_terms(pod), preferred_terms(pod)
    strict = [one for term in terms[:1] for one in expressions(term)]
    heaviest = sorted(preferred, key=lambda one: -one["weight"])[:1]
    strict += [one for term in heaviest for one in expressions(term["preference"])]
    if any((one["key"], one["operator"]) == (NODEPOOL, "DoesNotExist") for one in strict):
        yield "configured to not run on a Karpenter provisioned node"
    if any(term.get("matchFields") for term in terms):
        yield "node selector term with matchFields is not supported"
    stated = [{"key": k, "operator": "In", "values": [v]} for k, v in selector(pod).items()]
    for one in (*stated, *(one for term in terms for one in expressions(term))):
        yield from _invalid(one["key"], one["operator"], one.get("values") or ())


def _invalid(key: str, operator: str, values: Sequence[str]) -> Iterator[str]:
    # pkg/apis/v1/nodeclaim_validation.go, ValidateRequirement
    key = NORMALISED.get(key, key)
    if operator not in OPERATORS:
        yield f"key {key} has an unsupported operator {operator}"
    # pkg/apis/v1/labels.go, IsRestrictedLabel
    domain = key.rpartition("/")[0]
    ours = domain == "karpenter.sh" or domain.endswith(".karpenter.sh")
    if key not in WELL_KNOWN and (ours or key == HOSTNAME):
        yield f"using label {key} is not allowed"
    if key == CAPACITY_TYPE and operator == "In" and not set(values) & set(CAPACITY_TYPES):
        yield f"no valid values found in {list(values)} for {key}"
    if not _NAME.fullmatch(key):
        yield f"key {key} is not a qualified name"
    for value in values:
        if not _VALUE.fullmatch(value):
            yield f"invalid value {value} for key {key}"
    if operator == "In" and not values:
        yield f"key {key} with operator In must have a value defined"
    single = len(values) == 1 and values[0].isdigit()
    if operator in ("Gt", "Lt", "Gte", "Lte") and not single:
        yield f"key {key} with operator {operator} must have a single positive integer value"


def _constraints(pod: Json) -> Iterator[list[Json]]:
    """What is required of a node, in the order in which it is tried."""
    # pkg/scheduling/requirements.go, newPodRequirements: the first term and the heaviest
    # preference; pkg/controllers/provisioning/scheduling/preferences.go, Relax: terms go first, the
    # last stays, preferences go next
    own = [{"key": k, "operator": "In", "values": [v]} for k, v in selector(pod).items()]
    terms = [list(expressions(term)) for term in required_terms(pod)] or [[]]
    preferred = [
        list(expressions(one["preference"]))
        for one in sorted(preferred_terms(pod), key=lambda one: -one["weight"])
    ]
    for term in terms[:-1]:
        yield [*own, *term, *(preferred[0] if preferred else ())]
    for preference in (*preferred, []):
        yield [*own, *terms[-1], *preference]


def _compatible(expression: Json, labels: dict[str, str]) -> bool:
    # pkg/scheduling/requirements.go, Compatible: a custom label has to be known to the NodePool
    key = NORMALISED.get(expression["key"], expression["key"])
    if key in WELL_KNOWN and key not in labels:
        return expression["operator"] != "DoesNotExist"
    return satisfied(expression | {"key": key}, labels)
