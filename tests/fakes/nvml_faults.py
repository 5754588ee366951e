# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What may happen to NVML and its GPUs, the same for every rig that stands on the fake library."""

from __future__ import annotations

import pynvml

from fakes.nvml import FakeGpu, FakeNvml


class NvmlFaults:
    """Faults of a rig with ``gpus``, their fakes and the fake library."""

    gpus: tuple[str, ...]
    fakes: dict[str, FakeGpu]
    nvml: FakeNvml

    def blind(self) -> None:
        for fake in self.fakes.values():
            fake.error = pynvml.NVML_ERROR_UNKNOWN

    def lose(self, gpu: str) -> None:
        if gpu == self.gpus[-1]:
            self.fakes[gpu].absent = True
        self.fakes[gpu].lost = True

    def find_again(self, gpu: str) -> None:
        self.fakes[gpu].absent = self.fakes[gpu].lost = False

    def take_everything(self) -> None:
        self.nvml.init_error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        self.nvml.initialised = 0

    def give_everything(self) -> None:
        self.nvml.init_error = None
