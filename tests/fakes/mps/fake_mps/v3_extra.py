# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Static SM partitions and features of protocol v3."""

from __future__ import annotations

from collections.abc import Callable

from fake_mps.hardware import Gpu, find_gpu
from fake_mps.machine import Machine
from fake_mps.model import Server
from fake_mps.partitions import INVALID
from fake_mps.table import render
from fake_mps.v3_parse import Call, Failed

FEATURES = ("memacct", "context-share")


def partition_create(machine: Machine, call: Call) -> str:
    """Carve a partition out of a device that no one uses."""
    server, gpu = _target(machine, call)
    name, chunks = call.first("name"), call.option("chunks")
    if not chunks.isdigit() or not int(chunks):
        raise Failed("--chunks must be a positive integer.")
    if any(client.gpu is gpu for client in server.clients):
        raise Failed(f"Device {gpu.uuid} has active clients.")
    row = machine.partitions.add(gpu, int(chunks), name=name, server=server.name)
    if row is None:
        raise Failed(
            f"Failed to fulfill the requested SM partition of {chunks} chunks, error {INVALID}"
        )
    return (
        f"SM partition '{name}' created on device {gpu.uuid} (sm-count={row.sm_count})\n"
        f"CUDA_MPS_SM_PARTITION={gpu.uuid}/{row.identifier}"
    )


def partition_delete(machine: Machine, call: Call) -> str:
    """Give the chunks back."""
    server, gpu = _target(machine, call)
    name = call.first("name")
    found = [
        one for one in machine.partitions.of(gpu) if (one.server, one.name) == (server.name, name)
    ]
    if not found:
        raise Failed(f"SM partition '{name}' does not exist on device {gpu.uuid}.")
    machine.partitions.rows.remove(found[0])
    return f"SM partition '{name}' deleted from device {gpu.uuid}"


_PARTITION_COLUMNS = {
    "server": 14,
    "device": 43,
    "name": 20,
    "chunks": 8,
    "sm-count": 10,
    "include-remainder": 19,
    "status": 13,
    "visible-uuid": 43,
}


def partition_list(machine: Machine, call: Call) -> str:
    """Partitions, and one row for what is left of each device."""
    wanted = call.options.get("server")
    rows: list[dict[str, str]] = []
    for server in machine.servers.values():
        if wanted not in (None, server.name):
            continue
        for gpu in server.gpus:
            rows += [
                _row(
                    server,
                    gpu,
                    one.name,
                    one.chunks,
                    one.sm_count,
                    "false",
                    "created",
                    one.identifier,
                )
                for one in machine.partitions.of(gpu)
                if one.server == server.name
            ]
            free, (free_sms, _) = machine.partitions.chunks(gpu)[0], machine.partitions.sms(gpu)
            if free:
                rows.append(_row(server, gpu, "-", free, free_sms, "-", "unallocated", "-"))
    return render(rows, _PARTITION_COLUMNS, call.options.get("format"))


def _row(server: Server, gpu: Gpu, *cells: object) -> dict[str, str]:
    return dict(zip(_PARTITION_COLUMNS, (server.name, gpu.uuid, *map(str, cells)), strict=True))


def _target(machine: Machine, call: Call) -> tuple[Server, Gpu]:
    server = machine.servers.get(call.option("server"))
    if server is None:
        raise Failed(f"Server '{call.option('server')}' does not exist.")
    if call.uid not in (0, server.uid):
        verb = f"{call.module} {call.verb}".upper()
        raise Failed(f"Insufficient privileges for UID {call.uid}. '{verb}' requires server owner.")
    gpu = find_gpu(server.gpus, call.option("device"))
    if gpu is None:
        raise Failed(f"Device {call.option('device')} does not exist on server '{server.name}'.")
    return server, gpu


def feature_enable(machine: Machine, call: Call) -> str:
    """Switch a feature on."""
    machine.features_off.discard(_feature(call))
    return ""


def feature_disable(machine: Machine, call: Call) -> str:
    """Switch a feature off."""
    machine.features_off.add(_feature(call))
    return ""


def feature_describe(machine: Machine, call: Call) -> str:
    """The state of one feature or of all."""
    names = (_feature(call),) if call.positional else FEATURES
    rows = [
        {
            "FEATURE": name,
            "STATE": "disabled" if name in machine.features_off else "enabled (default)",
            "MODULE": name,
            "COVERS": "-",
        }
        for name in names
    ]
    columns = {"FEATURE": 16, "STATE": 20, "MODULE": 16, "COVERS": 10}
    return render(rows, columns, call.options.get("format"))


def _feature(call: Call) -> str:
    if call.first("feature") not in FEATURES:
        raise Failed(f"Unknown feature '{call.positional[0]}', known are: {', '.join(FEATURES)}.")
    return call.positional[0]


HANDLERS: dict[tuple[str, str], Callable[[Machine, Call], str]] = {
    ("sm-partition", "create"): partition_create,
    ("sm-partition", "delete"): partition_delete,
    ("sm-partition", "list"): partition_list,
    ("feature", "enable"): feature_enable,
    ("feature", "disable"): feature_disable,
    ("feature", "describe"): feature_describe,
}
