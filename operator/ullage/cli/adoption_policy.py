# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Check that a policy or a webhook reads the labels of other controllers' pods, and answers.

The API server is asked for a dry run of the creation of a labelled pod. It reveals a policy or a
webhook that is installed and does not answer, even one that the user may not list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

from ullage.api.adoption import ANNOTATION_ADOPTED, AdoptionKey
from ullage.api.checks import CheckState, NodeCheck
from ullage.api.readers import section
from ullage.ports import POD, ApiError, JsonObject, Kind, NotFound, Page, Selector

NAME: Final = "Labels"
CHART_LABEL: Final = "helm.sh/chart"
CHART: Final = "ullage-"
"""Prefix of the chart's name and version, whatever the installation's name."""
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""The newest first, as in the chart."""
REHEARSED: Final[Mapping[str, object]] = {
    "metadata": {
        "generateName": "ullage-doctor-",
        "labels": {AdoptionKey.SHARE.key: "10"},
    },
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "main",
                "image": "none",
                "resources": {
                    "requests": {"cpu": "1m", "memory": "1Mi"},
                    "limits": {"cpu": "1m", "memory": "1Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}
"""A pod that every PodSecurity level admits; it is never created."""


def _kind(version: str, plural: str, kind: str) -> Kind:
    return Kind(
        group="admissionregistration.k8s.io",
        version=version,
        plural=plural,
        kind=kind,
        namespaced=False,
    )


def mutating_policy(version: str) -> Kind:
    """MutatingAdmissionPolicy in a served version of the API."""
    return _kind(version, "mutatingadmissionpolicies", "MutatingAdmissionPolicy")


WEBHOOKS: Final = _kind("v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration")


class Rehearsing(Protocol):
    """The API calls of this check."""

    def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        """Yield the pages of one consistent list."""
        ...

    async def rehearse(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        """Create one object without storing it."""
        ...


async def labels_are_read(cluster: Rehearsing, namespace: str) -> NodeCheck:
    """Check that pods with ``ullage.dev/share`` get a device; never failed, since it is optional.

    Args:
        cluster: Cluster with the user's own credentials.
        namespace: A namespace in which the user may create pods.
    """
    installed = await _installed(cluster)
    try:
        pod = await cluster.rehearse(POD, REHEARSED, namespace=namespace)
    except ApiError as error:
        return _open(
            f"{installed}; whether it answers is not known: {error.message}",
            f"name a namespace in which you may create pods (now {namespace})",
        )
    if ANNOTATION_ADOPTED in section(section(pod, "metadata"), "annotations"):
        message = f"{installed}; it prepares a labelled pod"
        return NodeCheck(name=NAME, state=CheckState.OK, message=message)
    return _open(
        f"{installed}; a labelled pod in {namespace} is not prepared and runs without a device",
        "helm upgrade with admissionPolicy.adoption.enabled=true, and look at the notes; with the"
        " webhook, at the pods with the label app.kubernetes.io/component=webhook",
    )


async def _installed(cluster: Rehearsing) -> str:
    """Text of our part that prepares pods."""
    served = ""
    for version in VERSIONS:
        try:
            if await _is_ours(cluster, mutating_policy(version)):
                return f"MutatingAdmissionPolicy {version} is installed"
            served = served or f"{version} of MutatingAdmissionPolicy is served"
        except NotFound:
            continue
        except ApiError as error:
            return f"what is installed cannot be listed ({error.message})"
    try:
        if await _is_ours(cluster, WEBHOOKS):
            return "the webhook is installed"
    except ApiError as error:
        return f"what is installed cannot be listed ({error.message})"
    return f"{served or 'no MutatingAdmissionPolicy is served'}, none of Ullage is installed"


async def _is_ours(cluster: Rehearsing, kind: Kind) -> bool:
    async for page in cluster.list_paged(kind, Selector(labels=CHART_LABEL)):
        for item in page.items:
            labels = section(section(item, "metadata"), "labels")
            if str(labels.get(CHART_LABEL, "")).startswith(CHART):
                return True
    return False


def _open(message: str, remedy: str) -> NodeCheck:
    return NodeCheck(name=NAME, state=CheckState.UNCONFIRMED, message=message, remedy=remedy)
