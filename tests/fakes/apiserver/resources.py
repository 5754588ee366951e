# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which resource types the fake serves, and with which subresources."""

from __future__ import annotations

from dataclasses import dataclass

from ullage import ports
from ullage.cli.adoption_policy import WEBHOOKS, mutating_policy
from ullage.cli.prerequisites import RESOURCE_SLICE, RUNTIME_CLASS
from ullage.ports import Kind


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One served type; ``custom`` ones follow the rules of CustomResourceDefinitions."""

    kind: Kind
    short: tuple[str, ...] = ()
    status: bool = False
    scale: bool = False

    @property
    def plural(self) -> str:
        return self.kind.plural

    @property
    def qualified_kind(self) -> str:
        """The kind as errors name it."""
        return f"{self.kind.kind}.{self.kind.group}" if self.custom else self.kind.kind

    @property
    def custom(self) -> bool:
        return self.kind.group == "ullage.dev"


NAMESPACE = ports.NAMESPACE
CRD = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)

RESOURCES: tuple[Resource, ...] = (
    Resource(kind=NAMESPACE, short=("ns",), status=True),
    Resource(kind=ports.NODE, short=("no",), status=True),
    Resource(kind=ports.POD, short=("po",), status=True),
    Resource(kind=ports.SERVICE, short=("svc",), status=True),
    Resource(kind=ports.CLAIM, short=("pvc",), status=True),
    Resource(kind=ports.VOLUME, short=("pv",), status=True),
    Resource(kind=ports.STORAGE_CLASS, short=("sc",)),
    Resource(kind=ports.EVENT, short=("ev",)),
    Resource(kind=ports.CONFIG_MAP, short=("cm",)),
    Resource(kind=ports.SECRET),
    Resource(kind=ports.NETWORK_POLICY, short=("netpol",)),
    Resource(kind=ports.DEPLOYMENT, short=("deploy",), status=True, scale=True),
    Resource(kind=ports.REPLICA_SET, short=("rs",), status=True, scale=True),
    Resource(kind=ports.JOB, status=True),
    Resource(kind=ports.POD_GROUP, status=True),
    Resource(kind=ports.LEASE),
    Resource(kind=RESOURCE_SLICE),
    Resource(kind=RUNTIME_CLASS),
    Resource(kind=mutating_policy("v1beta1")),
    Resource(kind=WEBHOOKS),
    Resource(kind=CRD, short=("crd",), status=True),
    Resource(kind=ports.TRAINING_JOB, short=("tj",), status=True),
    Resource(kind=ports.INFERENCE_DEPLOYMENT, short=("infd",), status=True, scale=True),
    Resource(kind=ports.WORKLOAD_PROFILE, short=("wp",), status=True),
    Resource(kind=ports.GPU_NODE, short=("gn",), status=True),
    Resource(kind=ports.DEVICE_PROFILE, short=("dp",), status=True),
    Resource(kind=ports.SCHEDULING_POLICY, short=("sp",), status=True),
    Resource(kind=ports.CAPACITY_POOL, short=("cp",), status=True),
    Resource(kind=ports.TUNING_JOB, short=("tune",), status=True),
    Resource(kind=ports.PROFILE_REQUEST, short=("preq",), status=True),
)
