# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of a device's metrics, with the names of NVIDIA's DCGM exporter.

Metrics identify a device by its UUID alone. The registry adds node and index, so that metrics of
both exporters join ``on (UUID)`` and the device can be found in ``nvidia-smi``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from ullage.api.devices import ObservedDevice

DEVICE: Final = "UUID"
"""Label of every metric of a device."""
INDEX: Final = "gpu"
"""The device's index on its node; a MIG device has its GPU's, empty = unknown."""
NODE: Final = "node"


class DeviceRegistry(CollectorRegistry):
    """A registry whose samples with a ``UUID`` also have index and node."""

    def __init__(self, node: str, devices: Callable[[], Sequence[ObservedDevice]]) -> None:
        """``devices`` returns those of the node ``node`` at the time of a scrape."""
        super().__init__(auto_describe=False)
        self._node = node
        self._devices = devices

    def collect(self) -> Iterator[Metric]:
        """The current metric families."""
        indices = {device.uuid: device.index for device in self._devices()}
        for family in super().collect():
            family.samples = [self._placed(sample, indices) for sample in family.samples]
            yield family

    def _placed(self, sample: Sample, indices: dict[str, int | None]) -> Sample:
        uuid = sample.labels.get(DEVICE)
        if uuid is None:
            return sample
        index = indices.get(uuid)
        place = {INDEX: "" if index is None else str(index), NODE: self._node}
        return sample._replace(labels={**sample.labels, **place})
