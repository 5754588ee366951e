# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Static SM partitions: chunks of SMs that belong to one partition and to no one else.

Percentages have no meaning beside them. An identifier is opaque, known only at run time.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from fake_mps.hardware import Gpu

INVALID = "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of one GPU."""

    gpu: str
    identifier: str
    chunks: int
    sm_count: int
    name: str = ""
    server: str = ""


@dataclass(slots=True, kw_only=True)
class Partitions:
    """All partitions of a daemon."""

    rows: list[Partition] = field(default_factory=list)
    made: int = 0

    def of(self, gpu: Gpu) -> list[Partition]:
        """The partitions of one GPU, oldest first."""
        return [row for row in self.rows if row.gpu == gpu.uuid]

    def chunks(self, gpu: Gpu) -> tuple[int, int]:
        """Free and used chunks."""
        used = sum(row.chunks for row in self.of(gpu))
        return gpu.sm_count // gpu.chunk_sms - used, used

    def sms(self, gpu: Gpu) -> tuple[int, int]:
        """Free and used SMs."""
        used = sum(row.sm_count for row in self.of(gpu))
        return gpu.sm_count - used, used

    def add(self, gpu: Gpu, chunks: int, *, name: str = "", server: str = "") -> Partition | None:
        """Make a partition; None when the GPU has not that many chunks left."""
        if not 0 < chunks <= self.chunks(gpu)[0]:
            return None
        self.made += 1
        opaque = bytes([chunks, self.made]) + bytes(28)
        row = Partition(
            gpu=gpu.uuid,
            identifier=base64.b64encode(opaque).decode(),
            chunks=chunks,
            sm_count=chunks * gpu.chunk_sms,
            name=name,
            server=server,
        )
        self.rows.append(row)
        return row

    def find(self, gpu: Gpu, identifier: str) -> Partition | None:
        """The partition with this identifier, or the only one that begins with it."""
        found = [
            row for row in self.of(gpu) if identifier and row.identifier.startswith(identifier)
        ]
        return found[0] if len(found) == 1 else None

    def share(self, mandatory: bool, gpu: Gpu, wish: str | None) -> int | None:
        """SMs of the partition that a client asks for; 0 for no partition, None for an error.

        The choice is the client's alone and nothing checks that it is allowed to make it.
        """
        if not wish:
            return None if mandatory else 0
        uuid, _, identifier = wish.partition("/")
        row = self.find(gpu, identifier) if gpu.uuid.startswith(uuid) else None
        return None if row is None else row.sm_count


def shortened(gpus: Sequence[Gpu], uuid: str) -> str:
    """The first group of a UUID, as lspart prints it."""
    return next(("-".join(gpu.uuid.split("-")[:2]) for gpu in gpus if gpu.uuid == uuid), uuid)
