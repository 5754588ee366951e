# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of children from a template and a few fields of action and blueprint."""

from __future__ import annotations

from dataclasses import fields as fields_of
from typing import Any

from ullage.api.reasons import Reason
from ullage.cluster.projection.pod_template import Blueprint, canonical_json
from ullage.cluster.records.object_ref import ObjectRef
from ullage.kube.manifests.children import deployment_body, pod_body
from ullage.scheduling.model.plan import ApplyDeployment, CreatePod

OF_BLUEPRINT = {part.name for part in fields_of(Blueprint)}
WHY: dict[str, Any] = {"epoch": 1, "reason": Reason.PLACED, "text": "because"}


def member_body(template: object, *, elastic: bool = False, **fields: Any) -> dict[str, Any]:
    """The pod of one rank; ``elastic``: it says how many members there are."""
    fields = {"rank": 0, "replicas": 1, "slots": 1, "template_hash": "abc"} | fields
    of_action = {name: value for name, value in fields.items() if name not in OF_BLUEPRINT}
    action = CreatePod(
        **of_action,
        **WHY,
        template_hash=fields["template_hash"],
        world_size=fields["replicas"] if elastic else 0,
    )
    return pod_body(action, _blueprint(template, fields))


def fleet_body(
    template: object,
    *,
    owner: ObjectRef,
    uid: str = "",
    pre_stop_sleep_s: int = 0,
    max_surge: int = 1,
    max_unavailable: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """The Deployment of a service."""
    fields = {"replicas": 1, "slots": 1, "template_hash": "abc"} | fields
    action = ApplyDeployment(
        owner=owner,
        name=owner.name,
        replicas=fields["replicas"],
        max_surge=max_surge,
        max_unavailable=max_unavailable,
        template_hash=fields["template_hash"],
        **WHY,
    )
    return deployment_body(action, _blueprint(template, fields), pre_stop_sleep_s, uid)


def _blueprint(template: object, fields: dict[str, Any]) -> Blueprint:
    kept = {name: value for name, value in fields.items() if name in OF_BLUEPRINT}
    return Blueprint(template_json=canonical_json(template), **kept)
