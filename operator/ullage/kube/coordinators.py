# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the objects of a job's coordinator, with the image and token known only to a process.

The token is generated here, once per job, and never read back: the operator may only create
Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from ullage import ports
from ullage.cluster.projection.pod_template import Blueprint
from ullage.cluster.records.object_ref import ObjectRef
from ullage.kube.manifests.coordinator import (
    coordinator_body,
    coordinator_policy,
    coordinator_secret,
    coordinator_service,
)
from ullage.ports import BadRequest, Conflict, JsonObject, Kind
from ullage.scheduling.model.plan import ApplyService, CreatePod
from ullage.scheduling.model.selectors import owner_labels

TOKEN_BYTES: Final = 32
"""Random bytes in the credential of a job's members for its coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """Image of coordinator pods, and the namespace from which their status may be read."""

    image: str = ""
    namespace: str = ""

    def guards(self, owner: ObjectRef) -> Mapping[Kind, JsonObject]:
        """Objects that must exist before the pod: its NetworkPolicy and its token."""
        ours = owner_labels(owner)
        return {
            ports.NETWORK_POLICY: coordinator_policy(owner, ours, self.namespace),
            ports.SECRET: coordinator_secret(owner, ours, token_urlsafe(TOKEN_BYTES)),
        }

    def pod(self, action: CreatePod, blueprint: Blueprint) -> JsonObject:
        """The coordinator's pod.

        Raises:
            Conflict: the job is no longer in tiers.
            BadRequest: the image of coordinators is not configured.
        """
        if blueprint.tiers is None:
            raise Conflict(409, "the job is in no tiers any more", "Conflict")
        if not self.image:
            text = "no image for leads of jobs in tiers: set ULLAGE_DECIDE_LEAD_IMAGE"
            raise BadRequest(400, text, "BadRequest")
        return coordinator_body(action, blueprint, self.image, owner_labels(action.owner))


def named(action: ApplyService, uid: str) -> JsonObject:
    """The Service in front of a coordinator."""
    return coordinator_service(action.owner, action.name, owner_labels(action.owner), uid)
