# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the MPS servers; labels name devices and outcomes, never pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ullage.api.devices import MpsState, ObservedDevice
from ullage.process.metric_families import counter, gauge
from ullage_node.model.device_labels import DEVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsFigures:
    """Figures of the servers, by device."""

    states: Mapping[tuple[str, str], bool] = gauge(
        "ullage_mps_server_state", "State of a device's MPS server.", DEVICE, "state"
    )
    clients: Mapping[str, int] = gauge(
        "ullage_mps_clients", "Clients of a device's MPS server.", DEVICE
    )
    faults: Mapping[str, int] = counter(
        "ullage_mps_faults", "Times that a device's MPS server left Active.", DEVICE
    )
    terminations: Mapping[str, int] = counter(
        "ullage_mps_terminations",
        "Containers taken off their devices before they were killed.",
        "result",
    )


def mps_figures(
    devices: Sequence[ObservedDevice], faults: Mapping[str, int], terminations: Mapping[str, int]
) -> MpsFigures:
    """The current figures."""
    servers = {device.uuid: device.mps for device in devices if device.mps is not None}
    return MpsFigures(
        states={
            (uuid, state.value): server.state is state
            for uuid, server in servers.items()
            for state in MpsState
        },
        clients={uuid: server.contexts for uuid, server in servers.items()},
        faults=faults,
        terminations=terminations,
    )
