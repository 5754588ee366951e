# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage doctor``: what the agent of each node tried, how it went, what mends it.

Reads GPUNodes alone; whatever stands in one harms its own lines only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.contract import (
    CheckState,
    JsonObject,
    NodeCheck,
    WireError,
    objects,
    section,
    text,
)
from ullage.api.reasons import Reason
from ullage.api.times import moment_of
from ullage.cli.tables import BAD, GOOD, SILENT_SECONDS, table_of
from ullage.cli.target import Target
from ullage.ports import GPU_NODE, ClusterPort, Selector

BAD_WHEN: Final = {"Ready": "False", "Degraded": "True", "DeviceLost": "True", "Sharing": "False"}
"""Conditions of a GPUNode that say that something is wrong, and their status then."""
STYLES: Final = {CheckState.OK: GOOD, CheckState.FAILED: BAD, CheckState.UNCONFIRMED: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One node and its checks."""

    node: str
    checks: tuple[NodeCheck, ...]

    @property
    def failed(self) -> bool:
        """Whether any check failed."""
        return any(check.state is CheckState.FAILED for check in self.checks)


async def examine(target: Target, node: str, now: float) -> tuple[Examined, ...]:
    """The checks of this node ("" = of all), with the user's own credentials.

    Raises:
        CredentialsError: no usable credentials.
        ApiError: the API server refused or did not answer.
    """
    async with target.connect() as api:
        return await examined(api, node, now)


async def examined(cluster: ClusterPort, node: str, now: float) -> tuple[Examined, ...]:
    """The checks of this node ("" = of all), by name; none where there is no such GPUNode."""
    selector = Selector(fields=f"metadata.name={node}" if node else "")
    found: list[Examined] = []
    async for page in cluster.list_paged(GPU_NODE, selector):
        found += [read(item, now) for item in page.items]
    return tuple(sorted(found, key=lambda one: one.node))


def read(raw: JsonObject, now: float) -> Examined:
    """A GPUNode's checks: its agent's life, its conditions, then what the agent tried."""
    name = section(raw, "metadata").get("name")
    try:
        status = section(raw, "status")
        checks = (
            *_life(status, now),
            *_conditions(status),
            *(NodeCheck.from_wire(item) for item in objects(status, "checks")),
        )
    except WireError as error:
        checks = (_failed("Status", f"cannot be read: {error}", "update operator and agent"),)
    return Examined(node=str(name), checks=checks)


def _life(status: JsonObject, now: float) -> tuple[NodeCheck, ...]:
    said = text(status, "heartbeat", "")
    age = now - moment_of(said, "heartbeat") if said else None
    if age is not None and age <= SILENT_SECONDS:
        return (NodeCheck(name="Agent", state=CheckState.OK, message="reports"),)
    what = "has never reported" if age is None else f"is silent for {age / 60:.0f} min"
    remedy = "see the pod ullage-node of this node"
    return (_failed("Agent", f"{what}; what follows is old", remedy),)


def _conditions(status: JsonObject) -> tuple[NodeCheck, ...]:
    found = []
    for condition in objects(status, "conditions"):
        kind, state = text(condition, "type", ""), text(condition, "status", "")
        if BAD_WHEN.get(kind) == state:
            message = f"{text(condition, 'reason', '')}: {text(condition, 'message', '')}"
            found.append(_failed(kind, message, _remedy(text(condition, "reason", ""))))
    return tuple(found)


def _remedy(reason: str) -> str:
    """Where a reason is explained."""
    known = reason in {one.value for one in Reason}
    return f"kubectl ullage explain {reason}" if known else ""


def _failed(name: str, message: str, remedy: str) -> NodeCheck:
    return NodeCheck(name=name, state=CheckState.FAILED, message=message, remedy=remedy)


def table(found: Sequence[Examined]) -> RenderableType:
    """One line for each check."""
    if not found:
        return Text("no GPUNode: label nodes with ullage.dev/node=true", style="dim")
    shown: Table = table_of("NODE", "CHECK", "STATE", "FOUND", "WHAT MENDS OR CONFIRMS IT")
    for one in found:
        for check in one.checks:
            word = Text(check.state.value.lower(), style=STYLES[check.state])
            shown.add_row(
                Text(one.node), Text(check.name), word, Text(check.message), Text(check.remedy)
            )
    return shown
