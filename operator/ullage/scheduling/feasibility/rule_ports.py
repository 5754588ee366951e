# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ports of the node: one that is taken there keeps a pod away that takes it, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.pod_rules import HostPort, PodTraits
from ullage.scheduling.feasibility.pods_on_nodes import Bar, PodsOnNodes

_ANY: Final = "0.0.0.0"


def collide(one: HostPort, other: HostPort) -> bool:
    """Whether two containers of one node cannot take these ports."""
    alike = (one.port, one.protocol) == (other.port, other.protocol)
    return alike and (one.ip == other.ip or _ANY in (one.ip, other.ip))


def port_bars(pods: PodsOnNodes, ports: Sequence[HostPort]) -> Iterator[Bar]:
    """Nodes on which one of the ports is taken."""
    for wanted in ports:

        def takes(traits: PodTraits, wanted: HostPort = wanted) -> bool:
            return any(collide(wanted, taken) for taken in traits.ports)

        taken = pods.count(wanted, None, takes)
        where = "" if wanted.ip == _ANY else f" of {wanted.ip}"

        def why(at: int, wanted: HostPort = wanted, where: str = where) -> str:
            return f"host port {wanted.port}/{wanted.protocol}{where} is taken"

        yield Bar(Reason.HOST_PORT_TAKEN, taken > 0, why)
