# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of a device's metrics, named as NVIDIA's DCGM exporter names them.

Records of figures know a device by its UUID alone. The registry adds where it is, so that figures
of both exporters join ``on (UUID)`` and people find the device in ``nvidia-smi``.
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
"""The device's index on its node; a MIG device has its GPU's, empty = not known."""
NODE: Final = "node"


class DeviceRegistry(CollectorRegistry):
    """A registry whose samples with a ``UUID`` also say index and node."""

    def __init__(self, node: str, devices: Callable[[], Sequence[ObservedDevice]]) -> None:
        """``devices`` gives those of the node ``node`` at the moment of a scrape."""
        super().__init__(auto_describe=False)
        self._node = node
        self._devices = devices

    def collect(self) -> Iterator[Metric]:
        """Every family, as of now."""
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
