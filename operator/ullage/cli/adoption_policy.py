# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether labels on pods of other controllers are read in a cluster, as its policies show."""

from __future__ import annotations

from typing import Final

from ullage.api.contract import CheckState, NodeCheck
from ullage.ports import ApiError, ClusterPort, Kind, NotFound, Selector

NAME: Final = "Labels"
SELECTOR: Final = Selector(labels="app.kubernetes.io/name=ullage")
"""Of what the chart installs."""


def mutating_policy(version: str) -> Kind:
    """MutatingAdmissionPolicy as a version of the API serves it."""
    return Kind(
        group="admissionregistration.k8s.io",
        version=version,
        plural="mutatingadmissionpolicies",
        kind="MutatingAdmissionPolicy",
        namespaced=False,
    )


VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""The newest first, as the chart chooses."""


async def labels_are_read(cluster: ClusterPort) -> NodeCheck:
    """Whether pods with ``ullage.dev/share`` get a device; never failed: some want it off."""
    for version in VERSIONS:
        try:
            async for page in cluster.list_paged(mutating_policy(version), SELECTOR):
                if page.items:
                    said = f"MutatingAdmissionPolicy {version} is installed"
                    return NodeCheck(name=NAME, state=CheckState.OK, message=said)
        except NotFound:
            continue
        except ApiError as error:
            return _open(
                f"MutatingAdmissionPolicies cannot be read: {error.message}",
                "ask for the right to list mutatingadmissionpolicies",
            )
        return _open(
            f"{version} of MutatingAdmissionPolicy is served, none of Ullage is installed",
            "helm upgrade, with admissionPolicy.adoption.enabled=true",
        )
    return _open(
        "the API server serves no MutatingAdmissionPolicy: pods with the label ullage.dev/share"
        " run without a device",
        "Kubernetes 1.36, or the feature gate MutatingAdmissionPolicy; then helm upgrade",
    )


def _open(message: str, remedy: str) -> NodeCheck:
    return NodeCheck(name=NAME, state=CheckState.UNCONFIRMED, message=message, remedy=remedy)
