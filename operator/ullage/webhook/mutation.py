# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Admission's additions to a pod that requests devices: marks, our gate, slots of its container.

The chart's MutatingAdmissionPolicy does the same in CEL; one table of cases keeps both equal.
Invalid values are rejected afterwards, by the ValidatingAdmissionPolicies.
"""

from __future__ import annotations

import re
from typing import Final

from ullage.api.adoption import (
    ADOPTED,
    ADOPTED_KIND,
    ANNOTATION_ADOPTED,
    AdoptionKey,
    asks_to_share,
)
from ullage.api.labels import GATE, LABEL_KIND, LABEL_MANAGED, SLOT_RESOURCE
from ullage.api.readers import JsonObject, objects, section, text

Operation = dict[str, object]
Patch = list[Operation]
_DEVICES: Final = re.compile(r"[0-9]{1,2}")


def mutation(pod: JsonObject) -> Patch:
    """The JSON patch (RFC 6902) that prepares a new pod; empty without a request for devices.

    Raises:
        WireError: the object does not have the shape of a pod.
    """
    metadata, spec = section(pod, "metadata"), section(pod, "spec")
    if not asks_to_share(section(metadata, "labels")):
        return []
    return [*_marks(metadata), *_gate(spec), *_slots(metadata, spec)]


def _marks(metadata: JsonObject) -> Patch:
    return [
        _add(("metadata", "labels", LABEL_MANAGED), "true"),
        _add(("metadata", "labels", LABEL_KIND), ADOPTED_KIND),
        *_present(metadata, "annotations", ("metadata",), {}),
        _add(("metadata", "annotations", ANNOTATION_ADOPTED), ADOPTED),
    ]


def _gate(spec: JsonObject) -> Patch:
    """Our gate; none for a pod with a node, which the API server rejects without a remedy."""
    if spec.get("nodeName"):
        return []
    gates = objects(spec, "schedulingGates")
    if any(gate.get("name") == GATE for gate in gates):
        return []
    return [
        *_present(spec, "schedulingGates", ("spec",), []),
        _add(("spec", "schedulingGates", "-"), {"name": GATE}),
    ]


def _slots(metadata: JsonObject, spec: JsonObject) -> Patch:
    """The slots of the chosen container; none without a container of that name."""
    containers = objects(spec, "containers")
    names = [container.get("name") for container in containers]
    annotations = section(metadata, "annotations")
    chosen = annotations.get(AdoptionKey.CONTAINER.key, names[0] if names else "")
    if chosen not in names:
        return []
    index = names.index(chosen)
    above = ("spec", "containers", str(index))
    resources = section(containers[index], "resources")
    patch = _present(containers[index], "resources", above, {})
    for field in ("limits", "requests"):
        section(resources, field)
        patch += _present(resources, field, (*above, "resources"), {})
        patch.append(_add((*above, "resources", field, SLOT_RESOURCE), _count(metadata)))
    return patch


def _count(metadata: JsonObject) -> str:
    """Slots: the number of devices, 1 for a share; an invalid number is rejected afterwards."""
    devices = text(section(metadata, "labels"), AdoptionKey.DEVICES.key, "")
    return devices if _DEVICES.fullmatch(devices) else "1"


def _present(holder: JsonObject, field: str, above: tuple[str, ...], empty: object) -> Patch:
    """Create a missing field, so that values can be added to it."""
    return [_add((*above, field), empty)] if holder.get(field) is None else []


def _add(path: tuple[str, ...], value: object) -> Operation:
    escaped = (part.replace("~", "~0").replace("/", "~1") for part in path)
    return {"op": "add", "path": "".join(f"/{part}" for part in escaped), "value": value}
