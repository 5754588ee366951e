# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage doctor``: what each node needs, what its agent tried, and how to fix it.

Reads GPUNodes, and as far as the user may, Nodes and other projects' objects on them; an invalid
object affects only its own node's lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.checks import CheckState, NodeCheck
from ullage.api.labels import LABEL_NODE
from ullage.api.readers import JsonObject, WireError, objects, section, text
from ullage.api.reasons import reason_of
from ullage.api.times import moment_of
from ullage.cli.adoption_policy import labels_are_read
from ullage.cli.held_back import deletions_end
from ullage.cli.prerequisites import (
    RESOURCE_SLICE,
    RUNTIME_CLASS,
    OtherProjects,
    offering_nodes,
    prerequisites,
    runtime_class,
)
from ullage.cli.tables import BAD, GOOD, table_of
from ullage.cli.target import ClusterTarget
from ullage.ports import GPU_NODE, NODE, ApiError, ClusterPort, Forbidden, Kind, NotFound, Selector
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S

CLUSTER: Final = "(cluster)"
"""Placeholder for the name of a node in a check of the whole cluster."""
BAD_WHEN: Final = {"Ready": "False", "Degraded": "True", "DeviceLost": "True", "Sharing": "False"}
"""Conditions of a GPUNode that report a problem, and their status then."""
STYLES: Final = {CheckState.OK: GOOD, CheckState.FAILED: BAD, CheckState.UNCONFIRMED: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One node and its checks."""

    node: str
    checks: tuple[NodeCheck, ...]

    @property
    def failed(self) -> bool:
        """True if any check failed."""
        return any(check.state is CheckState.FAILED for check in self.checks)


async def examine(target: ClusterTarget, node: str, now: float) -> tuple[Examined, ...]:
    """The checks of this node ("" = of all, and of the cluster), with the user's own credentials.

    Only GPUNodes must be readable; unreadable other objects leave a check unconfirmed.

    Raises:
        CredentialsError: no usable credentials.
        ApiError: the API server refused or did not answer.
    """
    async with target.connect() as api:
        results = await examined(api, node, now)
        if node or not results:
            return results
        checks = (
            await labels_are_read(api, target.namespace_or("")),
            *await deletions_end(api, now),
        )
        return (Examined(node=CLUSTER, checks=checks), *results)


async def examined(cluster: ClusterPort, node: str, now: float) -> tuple[Examined, ...]:
    """The checks of this node ("" = of all), by name; none for a node unknown to Ullage."""
    fields = f"metadata.name={node}" if node else ""
    agents = _by_name(await _listed(cluster, GPU_NODE, Selector(fields=fields)))
    try:
        labelled = Selector(fields=fields, labels=f"{LABEL_NODE}=true")
        nodes, unread = _by_name(await _listed(cluster, NODE, labelled)), ""
    except Forbidden as error:
        nodes, unread = {}, error.message
    around = OtherProjects(
        dra_nodes=await _dra_nodes(cluster), runtime_classes=await _runtime_classes(cluster)
    )
    results = []
    for name in sorted(agents.keys() | nodes.keys()):
        own = read(agents[name], now) if name in agents else _without_agent(name)
        checks = (
            *_node_checks(name, nodes.get(name), unread, around),
            *own.checks,
            *runtime_class(name, own.checks, around),
        )
        results.append(Examined(node=name, checks=checks))
    return tuple(results)


async def _listed(cluster: ClusterPort, kind: Kind, selector: Selector) -> list[JsonObject]:
    items: list[JsonObject] = []
    async for page in cluster.list_paged(kind, selector):
        items += page.items
    return items


async def _dra_nodes(cluster: ClusterPort) -> frozenset[str] | None:
    """Nodes with GPUs of NVIDIA's DRA driver; ``None`` = the user may not list them."""
    try:
        return offering_nodes(await _listed(cluster, RESOURCE_SLICE, Selector()))
    except NotFound:  # Kubernetes serves this version from 1.34 on: no driver publishes in it
        return frozenset()
    except ApiError:
        return None


async def _runtime_classes(cluster: ClusterPort) -> frozenset[str] | None:
    try:
        return frozenset(_by_name(await _listed(cluster, RUNTIME_CLASS, Selector())))
    except ApiError:
        return None


def _by_name(items: Sequence[JsonObject]) -> Mapping[str, JsonObject]:
    return {str(section(item, "metadata").get("name")): item for item in items}


def _without_agent(name: str) -> Examined:
    remedy = (
        "the log of the operator, whose pods are: kubectl get pods --all-namespaces --selector"
        " app.kubernetes.io/component=operator"
    )
    missing = _failed("GPUNode", f"the Node is labelled {LABEL_NODE}=true, without effect", remedy)
    return Examined(node=name, checks=(missing,))


def _node_checks(
    name: str, node: JsonObject | None, unread: str, around: OtherProjects
) -> tuple[NodeCheck, ...]:
    if unread:
        unseen = NodeCheck(
            name="Node",
            state=CheckState.UNCONFIRMED,
            message=f"its prerequisites are not checked: {unread}",
            remedy="ask for the right to list nodes",
        )
        return (unseen,)
    if node is None:
        remedy = f"kubectl label node {name} {LABEL_NODE}=true, or kubectl delete gpunode {name}"
        return (_failed("Node", f"no Node of this name is labelled {LABEL_NODE}=true", remedy),)
    try:
        return prerequisites(node, around)
    except WireError as error:
        return (_failed("Node", f"cannot be read: {error}", f"kubectl get node {name} -o yaml"),)


def read(raw: JsonObject, now: float) -> Examined:
    """A GPUNode's checks: its agent's heartbeat, its conditions, then the agent's checks."""
    name = str(section(raw, "metadata").get("name"))
    try:
        status = section(raw, "status")
        checks = (
            *_life(name, status, now),
            *_conditions(status),
            *(NodeCheck.from_wire(item) for item in objects(status, "checks")),
        )
    except WireError as error:
        remedy = (
            "update ullage-crds, operator and agents to one version: helm list --all-namespaces"
        )
        checks = (_failed("Status", f"cannot be read: {error}", remedy),)
    return Examined(node=name, checks=checks)


def _life(name: str, status: JsonObject, now: float) -> tuple[NodeCheck, ...]:
    heartbeat = text(status, "heartbeat", "")
    age = now - moment_of(heartbeat, "heartbeat") if heartbeat else None
    if age is not None and age <= HEARTBEAT_MAX_AGE_S:
        return (NodeCheck(name="Agent", state=CheckState.OK, message="reports"),)
    what = "has never reported" if age is None else f"is silent for {age / 60:.0f} min"
    remedy = (
        "kubectl get pods --all-namespaces --output wide "
        f"--selector app.kubernetes.io/component=node --field-selector spec.nodeName={name}"
    )
    return (_failed("Agent", f"{what}; what follows is old", remedy),)


def _conditions(status: JsonObject) -> tuple[NodeCheck, ...]:
    failures = []
    for condition in objects(status, "conditions"):
        kind, state = text(condition, "type", ""), text(condition, "status", "")
        if BAD_WHEN.get(kind) == state:
            message = f"{text(condition, 'reason', '')}: {text(condition, 'message', '')}"
            failures.append(_failed(kind, message, _remedy(text(condition, "reason", ""))))
    return tuple(failures)


def _remedy(reason: str) -> str:
    """The place where a reason is explained."""
    return f"kubectl ullage explain {reason}" if reason_of(reason) is not None else ""


def _failed(name: str, message: str, remedy: str) -> NodeCheck:
    return NodeCheck(name=name, state=CheckState.FAILED, message=message, remedy=remedy)


def table(results: Sequence[Examined]) -> RenderableType:
    """One line for each check."""
    if not results:
        return Text("no GPUNode: label nodes with ullage.dev/node=true", style="dim")
    shown: Table = table_of("NODE", "CHECK", "STATE", "FOUND", "WHAT MENDS OR CONFIRMS IT")
    for result in results:
        for check in result.checks:
            word = Text(check.state.value.lower(), style=STYLES[check.state])
            shown.add_row(
                Text(result.node), Text(check.name), word, Text(check.message), Text(check.remedy)
            )
    return shown
