# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads from a pod its maximal time to be frozen, and the other pods of its gang.

Pure: a pod from the API server in, records out. Unreadable fields count as forbidding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.labels import LABEL_KIND, LABEL_OWNER, LABEL_RANK
from ullage.api.readers import JsonObject, WireError, objects, section, text, whole

PROBES: Final = ("livenessProbe", "startupProbe")
"""Probes on which kubelet kills; a frozen container answers none."""
WORLD: Final = ("WORLD_SIZE", "PET_NNODES", "JAX_NUM_PROCESSES")
"""Variables with the number of members that wait for one another."""
PERIOD_SECONDS: Final = 10
FAILURES: Final = 3
"""Defaults of a probe, as in the Kubernetes API."""
DIGITS_MOST: Final = 9
"""No gang has a billion members: a longer number is invalid, and means never all here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """Bounds of freezing a pod.

    ``patience`` holds seconds until kubelet would kill a silent container, by container, for those
    that have a probe. ``gang`` names the pods that wait for one another, "" = none; ``members`` is
    their number.
    """

    patience: tuple[tuple[str, float], ...] = ()
    gang: str = ""
    members: int = 1

    def patience_of(self, container: str) -> float | None:
        """Seconds until kubelet would kill this container, ``None`` = it never would."""
        return dict(self.patience).get(container)


UNREADABLE: Final = Standstill(gang="unreadable", members=1 << 31)
"""Never all here, so never paused."""


def read_standstill(pod: JsonObject) -> Standstill:
    """Read a pod; one with fields of invalid types must never be paused."""
    try:
        return _read(pod)
    except WireError:
        return UNREADABLE


def _read(pod: JsonObject) -> Standstill:
    metadata = section(pod, "metadata")
    labels = section(metadata, "labels")
    containers = objects(section(pod, "spec"), "containers")
    patience = {
        text(container, "name", ""): min(seconds)
        for container in containers
        if (
            seconds := [
                _seconds(section(container, p)) for p in PROBES if container.get(p) is not None
            ]
        )
    }
    members = max((_world(container) for container in containers), default=1)
    owner, namespace = text(labels, LABEL_OWNER, ""), text(metadata, "namespace", "")
    gang = ""
    if members > 1:
        kind = text(labels, LABEL_KIND, "")
        gang = f"{kind}/{namespace}/{owner or text(metadata, 'name', '')}"
    elif owner and text(labels, LABEL_RANK, "0") != "0":
        gang, members = (
            f"rank/{namespace}/{owner}",
            2,
        )  # a later rank that does not give the size
    return Standstill(patience=tuple(sorted(patience.items())), gang=gang, members=members)


def _seconds(probe: JsonObject) -> float:
    period = whole(probe, "periodSeconds", PERIOD_SECONDS)
    failures = whole(probe, "failureThreshold", FAILURES)
    return float(max(1, period) * max(1, failures))


def _world(container: JsonObject) -> int:
    values = {
        text(variable, "name", ""): variable.get("value") for variable in objects(container, "env")
    }
    declared = [value for name in WORLD if isinstance(value := values.get(name), str)]
    # "2:8" is an elastic gang of two to eight: require all eight to be here
    sizes = [value.rpartition(":")[2] for value in declared]
    return max((_members(size) for size in sizes), default=1)


def _members(size: str) -> int:
    """Number of members in user input; anything but a number counts as absent."""
    if not (size.isascii() and size.isdigit()):
        return 1
    return int(size) if len(size) <= DIGITS_MOST else UNREADABLE.members
