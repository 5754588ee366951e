# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the MPS servers, as the agent knows them at the moment of the scrape.

Labels name devices and outcomes, never pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.api.contract import MpsState, ObservedDevice


class MpsCollector(Collector):
    """Reads the agent's state at scrape time.

    ``faults`` counts the times that a device's server stopped serving, ``terminations`` the
    containers taken off their devices, by outcome.
    """

    def __init__(
        self,
        devices: Callable[[], Sequence[ObservedDevice]],
        faults: Mapping[str, int],
        terminations: Mapping[str, int],
    ) -> None:
        self._devices = devices
        self._faults = faults
        self._terminations = terminations

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        states = GaugeMetricFamily(
            "ullage_mps_server_state", "State of a device's MPS server.", labels=["gpu", "state"]
        )
        clients = GaugeMetricFamily(
            "ullage_mps_clients", "Clients of a device's MPS server.", labels=["gpu"]
        )
        for device in self._devices():
            if device.mps is None:
                continue
            for state in MpsState:
                states.add_metric([device.uuid, state.value], float(device.mps.state is state))
            clients.add_metric([device.uuid], device.mps.contexts)
        yield states
        yield clients
        faults = CounterMetricFamily(
            "ullage_mps_faults", "Times that a device's MPS server left Active.", labels=["gpu"]
        )
        for uuid, count in sorted(self._faults.items()):
            faults.add_metric([uuid], count)
        yield faults
        ended = CounterMetricFamily(
            "ullage_mps_terminations",
            "Containers taken off their devices before they were killed.",
            labels=["result"],
        )
        for result, count in sorted(self._terminations.items()):
            ended.add_metric([result], count)
        yield ended
