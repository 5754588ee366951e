# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the file that lists the CPU cores a node offers as emulated devices.

Emulated devices exist only where an administrator wrote this file: nothing here invents a device, a
core or a default. Every fault is reported with the correct line.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.api.readers import WireError, text, whole
from ullage.api.reasons import Reason
from ullage.api.slices import accelerator_key
from ullage_node.files import read_bounded
from ullage_node.model.devices import BackendUnavailable

CONFIG_FILE: Final = "emulated.json"
EXAMPLE: Final = (
    '{"devices": [{"core": 0, "percent": 100, "memoryMiB": 8192, "model": "emulated"}]}'
)
MOST_BYTES: Final = 1 << 20
DEVICES_MAX: Final = 64
"""Most devices that the smallest slot pool (two digits, eight sharers) serves with room."""
MODEL_CHARACTERS_MAX: Final = 63

_FIELDS: Final = frozenset({"core", "percent", "memoryMiB", "model"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedDevice:
    """One entry of the file.

    ``percent`` is the part of the core that the whole device is made of: less than 100 makes a
    slower type.
    """

    core: int
    percent: int
    memory_mib: int
    model: str


class ConfigInvalid(ValueError):
    """The file has an invalid entry; the text names it and the correct form."""


def load_config(path: Path) -> tuple[EmulatedDevice, ...]:
    """Read the devices that an administrator gave to this node.

    Raises:
        BackendUnavailable: the file is absent, unreadable or wrong (``DeviceConfigMissing``).
    """
    try:
        raw = read_bounded(path, MOST_BYTES, follow=True).decode("utf-8")
    except FileNotFoundError:
        raise _unavailable(f"{path} is missing; write it, for example {EXAMPLE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _unavailable(f"{path} cannot be read: {error}") from error
    try:
        return parse_config(raw)
    except ConfigInvalid as error:
        raise _unavailable(f"{path}: {error}") from error


def parse_config(raw: str) -> tuple[EmulatedDevice, ...]:
    """The devices that the file's text names, in its order.

    Raises:
        ConfigInvalid: the text breaks a rule.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"is no JSON ({error}); write for example {EXAMPLE}") from error
    if not isinstance(body, dict) or set(body) != {"devices"}:
        raise ConfigInvalid(f"expected one object with the field devices alone, as {EXAMPLE}")
    entries = body["devices"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= DEVICES_MAX:
        raise ConfigInvalid(f"devices: expected a list of 1 to {DEVICES_MAX} objects, as {EXAMPLE}")
    devices = tuple(_device(entry, f"devices[{number}]") for number, entry in enumerate(entries))
    used: Counter[int] = Counter()
    for device in devices:
        used[device.core] += device.percent
    for core, percent in sorted(used.items()):
        if percent > 100:
            raise ConfigInvalid(
                f"the devices of core {core} sum to {percent} percent; lower them to at most 100"
            )
    return devices


def _device(entry: object, where: str) -> EmulatedDevice:
    if not isinstance(entry, dict):
        raise ConfigInvalid(f"{where}: expected an object, got {type(entry).__name__}")
    for field in sorted(set(entry) - _FIELDS):
        raise ConfigInvalid(
            f"{where}.{field}: unknown field; known are {', '.join(sorted(_FIELDS))}"
        )
    try:
        device = EmulatedDevice(
            core=whole(entry, "core"),
            percent=whole(entry, "percent"),
            memory_mib=whole(entry, "memoryMiB"),
            model=text(entry, "model"),
        )
    except WireError as error:
        raise ConfigInvalid(f"{where}.{error}") from error
    _check(device, where)
    return device


def _check(device: EmulatedDevice, where: str) -> None:
    if device.core < 0:
        raise ConfigInvalid(f"{where}.core: {device.core} is negative; cores count from 0")
    if not 1 <= device.percent <= 100:
        raise ConfigInvalid(f"{where}.percent: {device.percent} is outside 1..100")
    if not 1 <= device.memory_mib < 1 << 31:
        raise ConfigInvalid(f"{where}.memoryMiB: {device.memory_mib} is not between 1 and 2^31 - 1")
    if not 1 <= len(device.model) <= MODEL_CHARACTERS_MAX:
        raise ConfigInvalid(
            f"{where}.model: {len(device.model)} characters; allowed are 1 to "
            f"{MODEL_CHARACTERS_MAX}"
        )
    if accelerator_key(device.model) != device.model:
        raise ConfigInvalid(
            f"{where}.model: '{device.model}' is no accelerator key; write "
            f"'{accelerator_key(device.model)}'"
        )


def check_cores(devices: tuple[EmulatedDevice, ...], machine: frozenset[int] | None) -> None:
    """Check that the machine has every named core; skipped where it does not report its cores.

    Raises:
        ConfigInvalid: a core does not exist.
    """
    missing = sorted({device.core for device in devices} - (machine or frozenset()))
    if machine is not None and missing:
        raise ConfigInvalid(
            f"core {missing[0]} is not on this machine, which has "
            f"{', '.join(map(str, sorted(machine)))}; name one of those"
        )


def _unavailable(message: str) -> BackendUnavailable:
    return BackendUnavailable(Reason.DEVICE_CONFIG_MISSING, message)
