# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a client gets when its server takes it: the device, the SM count, the memory cap.

The rule of every limit is the smaller one of what the server or namespace says and what the
client's own environment says; the environment alone can never widen anything, except by the
measured escape through an entry that names an invisible GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_mps.hardware import Gpu, allocatable_mib, read_memory_wish, visible_gpus
from fake_mps.model import Client, ClientState, Hello, Limits, Server

if TYPE_CHECKING:
    from fake_mps.machine import Machine

_DEFAULT_CONNECTIONS = 2


def admit(machine: Machine, server: Server, client: Client) -> str | None:
    """Attach a client; gives the name of the CUDA error when there is no room for it."""
    hello = client.hello
    seen = visible_gpus(server.gpus, hello.visible_devices) if server.gpus else ()
    if not seen:
        return "CUDA_ERROR_NO_DEVICE"
    gpu = seen[0]
    error = _room(machine, gpu, hello)
    if error is not None:
        return error
    limits = limits_for(server, hello.namespace, machine.options.protocol)
    share = machine.partitions.share(machine.options.static, gpu, hello.partition)
    if share is None:
        return "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
    percent = min(limits.percent or 100.0, hello.percent or 100.0)
    client.gpu = gpu
    client.sm_count = share or gpu.sms(percent)
    client.memory_cap_mib = memory_cap(gpu, limits, hello, seen)
    client.id = server.next_id
    server.next_id += 1
    client.state = ClientState.ATTACHED
    server.clients.append(client)
    _tell(machine, server, client, percent)
    return None


def limits_for(server: Server, namespace: str, protocol: int) -> Limits:
    """Ceilings for a newcomer: the server's under v2, its namespace's and no other under v3."""
    if protocol != 3:
        return server.limits
    return server.namespaces[namespace]


def memory_cap(gpu: Gpu, limits: Limits, hello: Hello, seen: tuple[Gpu, ...]) -> int | None:
    """The pinned memory limit in MiB of one process, None for none."""
    wish = read_memory_wish(hello.memory_limit, seen)
    if wish.escaped:
        return None
    caps = [caps[gpu.uuid] for caps in (limits.memory_mib, wish.caps_mib) if gpu.uuid in caps]
    return min(caps, default=None)


def _room(machine: Machine, gpu: Gpu, hello: Hello) -> str | None:
    limit = machine.script.context_limit(gpu)
    others = [
        client.hello
        for server in machine.servers.values()
        for client in server.clients
        if client.gpu is not None and client.gpu.uuid == gpu.uuid
    ]
    if sum(other.contexts for other in others) + hello.contexts > limit:
        return "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"
    wires = sum(
        max(one.connections, _DEFAULT_CONNECTIONS) * one.contexts for one in (*others, hello)
    )
    if wires > limit * _DEFAULT_CONNECTIONS:
        return "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"
    return None


def _tell(machine: Machine, server: Server, client: Client, percent: float) -> None:
    gpu, hello, log = client.gpu, client.hello, machine.logs.server
    assert gpu is not None
    log(server.pid, "Volta MPS Server: Received new client request")
    log(server.pid, "MPS Server: worker created")
    log(server.pid, "Volta MPS: Creating worker thread")
    words = "-".join(f"0x{part}" for part in _words(gpu.uuid))
    log(server.pid, f"Volta MPS: Device {gpu.name} (uuid {words}) is associated")
    cap = client.memory_cap_mib
    total = gpu.memory_mib
    client.inbox.append(
        {
            "event": "attached",
            "server": server.pid,
            "namespace": hello.namespace,
            "gpu": gpu.uuid,
            "percent": percent,
            "sm_count": client.sm_count,
            "memory_cap_mib": cap,
            "priority": _priority(machine, server, hello),
            "allocatable_mib": total if cap is None else min(total, allocatable_mib(cap)),
            "memory_free_mib": total if cap is None else min(total, cap),
            "memory_total_mib": total,
            "region": server.region,
            "exclusive": gpu.exclusive,
        }
    )


def _priority(machine: Machine, server: Server, hello: Hello) -> int:
    if hello.priority is not None:
        return hello.priority
    return limits_for(server, hello.namespace, machine.options.protocol).priority or 0


def _words(uuid: str) -> list[str]:
    digits = uuid.removeprefix("GPU-").replace("-", "")
    return [digits[at : at + 8] for at in range(0, len(digits), 8)]
