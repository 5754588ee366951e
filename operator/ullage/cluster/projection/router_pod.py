# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod that says it routes requests of a service, and why its router does not run."""

from __future__ import annotations

from typing import Final

from ullage.api.labels import LABEL_ROUTER
from ullage.api.readers import JsonObject, objects, section
from ullage.cluster.codecs.objects import identity, optional_text, optional_whole, short
from ullage.cluster.records.router import RouterPod

CONTAINER: Final = "router"
_STARTING: Final = ("", "ContainerCreating", "PodInitializing")
_ENDED: Final = "CrashLoopBackOff"
MOST_CHARACTERS: Final = 300


def project_router_pod(raw: JsonObject) -> RouterPod | None:
    """Read a router; ``None`` where a pod does not say that it is one.

    Raises:
        WireError: its metadata or status are malformed.
    """
    service = section(section(raw, "metadata"), "labels").get(LABEL_ROUTER)
    if not isinstance(service, str) or not service:
        return None
    meta, status = identity(raw), section(raw, "status")
    return RouterPod(
        uid=meta.uid,
        namespace=meta.namespace,
        service=service,
        address=optional_text(status, "podIP"),
        leaving=bool(optional_text(section(raw, "metadata"), "deletionTimestamp")),
        fault=_fault(status),
    )


def _fault(status: JsonObject) -> str:
    """Why the container does not run: what it said last, or kubelet of it."""
    for container in objects(status, "containerStatuses"):
        if container.get("name") != CONTAINER or container.get("ready") is True:
            continue
        state = section(container, "state")
        waiting = section(state, "waiting")
        ended = section(state, "terminated") or section(
            section(container, "lastState"), "terminated"
        )
        reason = optional_text(waiting, "reason")
        if reason not in (*_STARTING, _ENDED):
            return _line(reason, optional_text(waiting, "message"))
        if optional_whole(ended, "exitCode"):
            said = optional_text(ended, "message").strip().rpartition("\n")[2]
            return _line(f"exit {optional_whole(ended, 'exitCode')}", said)
    return ""


def _line(reason: str, said: str) -> str:
    words = " ".join(f"{reason}: {said}".split())
    return short(words.rstrip(": "), MOST_CHARACTERS)
