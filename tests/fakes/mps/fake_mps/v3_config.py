# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The TOML file of ``-a``: applied once at the start, by the same calls that a user would make."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from fake_mps.machine import Machine
from fake_mps.v3 import carry_out

_LIMITS = ("pinned_memory_limit", "active_thread_percentage", "client_priority")
_SERVER = (*_LIMITS, "allowed_devices", "uid", "locality_domains", "namespaces", "devices")


class ConfigError(Exception):
    """The file cannot be applied; the text says where."""


def apply_config(machine: Machine, path: str | Path) -> None:
    """Make the servers, namespaces, partitions and features that a file asks for.

    Raises:
        ConfigError: not TOML, an unknown key, or a call that the daemon refuses.
    """
    try:
        raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for words in _calls(raw):
        answer = carry_out(machine, words, 0)
        if answer.exit_code:
            raise ConfigError(f"{path}: {' '.join(words)}: {answer.text}")
        machine.tick()


def _calls(raw: Mapping[str, object]) -> Iterator[list[str]]:
    for name, server in _tables(raw.get("servers"), "servers"):
        _only(server, _SERVER, f"servers.{name}")
        yield ["server", "create", name, *_options(server, ("allowed_devices", "uid"))]
        if _options(server, _LIMITS):
            yield ["server", "set", name, *_options(server, _LIMITS)]
        for space, limits in _tables(server.get("namespaces"), f"servers.{name}.namespaces"):
            _only(limits, _LIMITS, f"servers.{name}.namespaces.{space}")
            if space != "default":
                yield ["namespace", "create", space, f"--server={name}"]
            if limits:
                yield ["namespace", "set", space, f"--server={name}", *_options(limits, _LIMITS)]
        yield from _partitions(name, server.get("devices"))
    for name, feature in _tables(raw.get("features"), "features"):
        yield ["feature", "enable" if feature.get("enabled", True) else "disable", name]


def _partitions(server: str, devices: object) -> Iterator[list[str]]:
    for device in devices if isinstance(devices, list) else []:
        for part in device.get("sm_partitions", []):
            place = [f"--server={server}", f"--device={device['uuid']}"]
            yield ["sm-partition", "create", part["name"], *place, f"--chunks={part['chunks']}"]


def _tables(raw: object, where: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    if raw is None:
        return
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: a table is needed")
    for name, value in raw.items():
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}.{name}: a table is needed")
        yield name, value


def _only(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]}")


def _options(table: Mapping[str, object], names: tuple[str, ...]) -> list[str]:
    return [f"--{name.replace('_', '-')}={table[name]}" for name in names if name in table]
