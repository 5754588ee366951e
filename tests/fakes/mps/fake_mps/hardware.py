# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The GPUs that the fake pretends to have, and the arithmetic of their shares.

Rounding and the two measured memory figures stand here and nowhere else. Nothing in this module
knows a server, a client or a socket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DEFAULT_UUID = "GPU-cb1213a3-d6a4-be7f-74d4-3ed3cdf7e667"
_UNIT_MIB = {"G": 1024, "M": 1}
# 10G leaves 9,728 MiB and 5G leaves 4,864 MiB to the application: one twentieth is CUDA's own.
_ALLOCATABLE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One pretended GPU; the defaults are an H100.

    Attributes:
        sm_step: hardware step that an SM count is rounded down to.
        chunk_sms: size of one static partition chunk.
        exclusive: compute mode EXCLUSIVE_PROCESS instead of DEFAULT.
        pre_volta: 16 contexts a device instead of 48 or 60.
    """

    uuid: str = DEFAULT_UUID
    name: str = "NVIDIA H100 80GB HBM3"
    sm_count: int = 132
    sm_step: int = 2
    chunk_sms: int = 8
    memory_mib: int = 81559
    exclusive: bool = False
    pre_volta: bool = False

    def sms(self, percent: float) -> int:
        """SMs that a client with this ceiling sees, rounded down to the step, at least one step."""
        wanted = int(self.sm_count * percent / 100 + 1e-9)
        return min(self.sm_count, max(self.sm_step, wanted - wanted % self.sm_step))


def allocatable_mib(cap_mib: int) -> int:
    """Memory an application gets out of a pinned limit."""
    return int(cap_mib * _ALLOCATABLE)


def parse_memory_mib(text: str) -> int:
    """Read ``10G`` or ``512M``.

    Raises:
        ValueError: anything else; the message says what is accepted.
    """
    number, unit = text[:-1], text[-1:].upper()
    if unit not in _UNIT_MIB or not number.isascii() or not number.isdigit():
        raise ValueError(f"memory limit {text!r} is not an integer followed by G or M")
    return int(number) * _UNIT_MIB[unit]


def find_gpu(gpus: Sequence[Gpu], name: str) -> Gpu | None:
    """The GPU of an ordinal, a UUID or the beginning of one that only it has."""
    if name.isascii() and name.isdigit():
        return gpus[int(name)] if int(name) < len(gpus) else None
    found = [gpu for gpu in gpus if name.startswith("GPU-") and gpu.uuid.startswith(name)]
    return found[0] if len(found) == 1 else None


def visible_gpus(inventory: Sequence[Gpu], visible_devices: str | None) -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves; as in CUDA, the first unknown name ends the list.

    With an empty inventory every name that looks like a UUID is an H100.
    """
    if visible_devices is None:
        return tuple(inventory) or (Gpu(),)
    seen: list[Gpu] = []
    for name in (part.strip() for part in visible_devices.split(",")):
        gpu = find_gpu(inventory, name)
        if gpu is None and not inventory:
            gpu = Gpu(uuid=name) if name.startswith("GPU-") else Gpu() if name == "0" else None
        if gpu is None:
            break
        seen.append(gpu)
    return tuple(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWish:
    """CUDA_MPS_PINNED_DEVICE_MEM_LIMIT of a client, resolved against what it can see.

    Attributes:
        escaped: an entry names a GPU that the client cannot see: every cap is dropped, the
            server's and the namespace's too (measured on driver 615.71).
    """

    caps_mib: Mapping[str, int]
    escaped: bool = False


def read_memory_wish(text: str | None, gpus: Sequence[Gpu]) -> MemoryWish:
    """Resolve ``0=1G,GPU-uuid=512M``; an entry that cannot be read counts as absent."""
    caps: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in (text or "").split(","))):
        device, _, value = entry.partition("=")
        gpu = find_gpu(gpus, device.strip())
        if gpu is None:
            return MemoryWish(caps_mib={}, escaped=True)
        try:
            caps[gpu.uuid] = parse_memory_mib(value.strip())
        except ValueError:
            continue
    return MemoryWish(caps_mib=caps)
