# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The modules of protocol v3 (r615): servers, namespaces, clients, devices, partitions, features.

``module verb [positional] [--key=value]``; every answer carries an exit status and errors are
printed like results, as the real binary does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fake_mps import v3_extra
from fake_mps.endings import TERMINATED, quit_daemon, terminate
from fake_mps.hardware import Gpu, find_gpu
from fake_mps.machine import Machine
from fake_mps.model import Answer, Client, ClientState, Limits, Server, ServerState
from fake_mps.table import render
from fake_mps.v3_parse import Call, Failed, limit_text, parse, read_limits

_NAME = re.compile(r"[a-z0-9_]{1,64}")
_STATUS = {
    ServerState.INITIALIZING: "Initializing",
    ServerState.ACTIVE: "Ready",
    ServerState.FAULT: "Fault",
}


def carry_out(machine: Machine, words: Sequence[str], uid: int) -> Answer:
    """Run one module call, or ``quit``."""
    answer = Answer()
    if words[0] == "quit":
        quit_daemon(machine, answer, None)
        return answer
    call = parse(words, uid)
    handler = HANDLERS.get((call.module, call.verb))
    try:
        if handler is None:
            raise Failed(f"Unknown command '{call.module} {call.verb}'")
        result = handler(machine, call)
    except Failed as failure:
        answer.finish(str(failure), 1)
        return answer
    if isinstance(result, Answer):
        return result
    answer.finish(result)
    return answer


# -- servers ---------------------------------------------------------------------------------------


def server_create(machine: Machine, call: Call) -> str:
    """Create a server; with a wrong GPU it succeeds and the server dies afterwards."""
    uid = int(call.options.get("uid", machine.server_uid(call.uid)))
    name = call.positional[0] if call.positional else f"uid_{uid}"
    if not call.positional and "uid" not in call.options:
        raise Failed("Either <name> or --uid=<n> is required.")
    _check_name(name)
    if machine.options.multiuser and uid != machine.options.uid:
        raise Failed("In multiuser mode only --uid=0 is allowed.")
    if call.uid not in (0, uid):
        raise Failed(_denial(call, "SERVER CREATE"))
    if name in machine.servers:
        raise Failed(f"Server '{name}' already exists.")
    allowed = call.options.get("allowed-devices")
    gpus = machine.gpus if allowed is None else _devices(machine, allowed)
    machine.start_server(uid, name, gpus=gpus, allowed=allowed or "all")
    return ""


def _devices(machine: Machine, allowed: str) -> tuple[Gpu, ...]:
    found = (find_gpu(machine.gpus, part.strip()) for part in allowed.split(","))
    return tuple(gpu for gpu in found if gpu is not None)


def server_delete(machine: Machine, call: Call) -> str:
    """Delete a server; --force does not wait for its clients."""
    server = _server(machine, call.first("name"))
    _own(call, server, "SERVER DELETE")
    if server.clients and "force" not in call.flags:
        raise Failed(f"Server '{server.name}' has active clients.")
    machine.stop_server(server)
    return ""


def server_list(machine: Machine, call: Call) -> str:
    """All servers, or one."""
    rows = [
        _server_fields(machine, server)
        for server in machine.servers.values()
        if not call.positional or server.name == call.positional[0]
    ]
    return render(rows, _SERVER_COLUMNS, call.options.get("format"))


_SERVER_COLUMNS = {
    "name": 14,
    "uid": 8,
    "pid": 8,
    "status": 14,
    "pipe-directory": 34,
    "allowed-devices": 43,
    "context-ids": 12,
}


def _server_fields(machine: Machine, server: Server) -> dict[str, str]:
    return {
        "name": server.name,
        "uid": str(server.uid),
        "pid": str(server.pid),
        "status": _STATUS[server.state],
        "pipe-directory": f"{machine.options.pipe_directory}/{server.name}",
        "allowed-devices": server.allowed.replace(",", " "),
        "context-ids": "-",
    }


def server_set(machine: Machine, call: Call) -> str:
    """Limits of a server's default namespace."""
    server = _server(machine, call.first("name"))
    _own(call, server, "SERVER SET")
    _apply(machine, call, server, "default")
    return ""


def server_get(machine: Machine, call: Call) -> str:
    """One field of a server."""
    return call.field(_server_fields(machine, _server(machine, call.first("name"))), 1)


# -- namespaces ------------------------------------------------------------------------------------


def namespace_create(machine: Machine, call: Call) -> str:
    """A namespace without limits is unlimited."""
    server, name = _server(machine, call.option("server")), call.first("name")
    _own(call, server, "NAMESPACE CREATE")
    _check_name(name)
    if name in server.namespaces:
        raise Failed(f"Namespace '{name}' already exists on server '{server.name}'.")
    server.namespaces[name] = Limits()
    return ""


def namespace_delete(machine: Machine, call: Call) -> str:
    """Delete a namespace; --force ends its clients' contexts."""
    server, name = _server(machine, call.option("server")), call.first("name")
    _own(call, server, "NAMESPACE DELETE")
    _namespace(server, name)
    if name == "default":
        raise Failed("The default namespace cannot be deleted.")
    attached = _clients_of(server, name)
    if attached and "force" not in call.flags:
        raise Failed(f"Namespace '{name}' has active clients.")
    for client in attached:
        client.state = ClientState.TERMINATED
        client.inbox.append({"event": "error", "error": TERMINATED})
        server.clients.remove(client)
    del server.namespaces[name]
    return ""


def namespace_list(machine: Machine, call: Call) -> str:
    """The namespaces of all servers or of one."""
    wanted = call.options.get("server")
    rows = [
        _namespace_fields(machine, server, name)
        for server in machine.servers.values()
        for name in server.namespaces
        if (wanted is None or server.name == wanted)
        and (not call.positional or name == call.positional[0])
    ]
    return render(rows, _NAMESPACE_COLUMNS, call.options.get("format"))


_NAMESPACE_COLUMNS = {
    "name": 26,
    "server": 14,
    "server-status": 15,
    "pinned-memory-limit": 21,
    "active-thread-percentage": 26,
    "client-priority": 17,
    "pipe-directory": 48,
}


def _namespace_fields(machine: Machine, server: Server, name: str) -> dict[str, str]:
    limits = server.namespaces[name]
    return {
        "name": name,
        "server": server.name,
        "server-status": _STATUS[server.state],
        "pinned-memory-limit": limit_text(limits),
        "active-thread-percentage": "-" if limits.percent is None else f"{limits.percent:g}",
        "client-priority": "-" if limits.priority is None else str(limits.priority),
        "pipe-directory": f"{machine.options.pipe_directory}/{server.name}/{name}",
    }


def namespace_set(machine: Machine, call: Call) -> str:
    """Limits of a namespace; refused while a client is attached to it."""
    server, name = _server(machine, call.option("server")), call.first("name")
    _own(call, server, "NAMESPACE SET")
    _namespace(server, name)
    _apply(machine, call, server, name)
    return ""


def namespace_get(machine: Machine, call: Call) -> str:
    """One field of a namespace."""
    server = _server(machine, call.positional[1] if len(call.positional) > 1 else "")
    _namespace(server, call.first("name"))
    return call.field(_namespace_fields(machine, server, call.positional[0]), 2)


def _apply(machine: Machine, call: Call, server: Server, name: str) -> None:
    wanted = read_limits(call.options)
    if _clients_of(server, name):
        raise Failed(f"Namespace '{name}' has active clients; limits cannot be changed.")
    limits = server.namespaces[name]
    if wanted.percent is not None:
        limits.percent = wanted.percent or None  # 0 takes the limit away
    if wanted.memory_mib is not None:
        limits.memory_mib = {gpu.uuid: wanted.memory_mib for gpu in server.gpus}
    if wanted.priority is not None:
        limits.priority = wanted.priority
    machine.log_limits(server, limits)


# -- clients, devices ------------------------------------------------------------------------------


def client_list(machine: Machine, call: Call) -> str:
    """Attached clients."""
    wanted = call.options.get("server")
    captured = machine.script.v3_client_rows == "captured"
    table = not (call.options.get("format") or "table").startswith("csv")
    rows = [
        _client_fields(server, client, exact=captured or table)
        for server in machine.servers.values()
        for client in server.clients
        if wanted is None or server.name == wanted
    ]
    return render(rows, _CLIENT_COLUMNS, call.options.get("format"))


_CLIENT_COLUMNS = {"PID": 8, "SERVER": 14, "DEVICE": 47, "MAWS NS": 26, "CMD": 200}


def _client_fields(server: Server, client: Client, *, exact: bool) -> dict[str, str]:
    gpu, name = client.gpu, client.hello.namespace
    assert gpu is not None
    ordinal = server.gpus.index(gpu)
    return {
        "PID": str(client.hello.pid),
        "SERVER": server.name,
        "DEVICE": gpu.uuid if exact else str(ordinal),
        "MAWS NS": f"{server.name}/{name} ({ordinal})" if exact else name,
        "CMD": client.hello.command,
    }


def client_get(machine: Machine, call: Call) -> str:
    """One field of a client."""
    server, client = _client(machine, call.first("pid"))
    gpu = client.gpu
    assert gpu is not None
    fields = {
        "pid": str(client.hello.pid),
        "server": server.name,
        "device": gpu.uuid,
        "pci-id": "-",
        "linux-ns": str(client.hello.pid_namespace),
        "maws-ns": client.hello.namespace,
        "cmd": client.hello.command,
    }
    return call.field(fields, 1)


def client_terminate(machine: Machine, call: Call) -> Answer:
    """Tear a client's contexts down; blocks until that is done."""
    server, client = _client(machine, call.first("pid"))
    _own(call, server, "CLIENT TERMINATE")
    if server.hung:
        return Answer()
    inner, answer = terminate(machine, server, client), Answer()

    def done() -> None:
        failed = inner.text != "0"
        answer.finish(str(inner.text) if failed else "", int(failed))

    if inner.done:
        done()
    else:
        inner.on_done = done
    return answer


def device_list(machine: Machine, call: Call) -> str:
    """The devices that servers enumerate."""
    wanted = call.options.get("server")
    rows = [
        {
            "Ordinal": str(ordinal),
            "Server": server.name,
            "PCI ID": "-",
            "Device UUID": gpu.uuid,
            "Name": gpu.name,
            "Total SMs": str(gpu.sm_count),
            "Total Chunks": str(gpu.sm_count // gpu.chunk_sms),
            "Attributes": "-",
        }
        for server in machine.servers.values()
        if wanted is None or server.name == wanted
        for ordinal, gpu in enumerate(server.gpus)
    ]
    return render(rows, _DEVICE_COLUMNS, call.options.get("format"))


_DEVICE_COLUMNS = {
    "Ordinal": 9,
    "Server": 14,
    "PCI ID": 14,
    "Device UUID": 43,
    "Name": 28,
    "Total SMs": 11,
    "Total Chunks": 14,
    "Attributes": 12,
}


# -- what several need -----------------------------------------------------------------------------


def _server(machine: Machine, name: str) -> Server:
    server = machine.servers.get(name)
    if server is None:
        raise Failed(f"Server '{name}' does not exist.")
    return server


def _namespace(server: Server, name: str) -> None:
    if name not in server.namespaces:
        raise Failed(f"Namespace '{name}' does not exist on server '{server.name}'.")


def _client(machine: Machine, pid: str) -> tuple[Server, Client]:
    for server in machine.servers.values():
        for client in server.clients:
            if str(client.hello.pid) == pid:
                return server, client
    raise Failed(f"Client {pid} does not exist.")


def _clients_of(server: Server, namespace: str) -> list[Client]:
    return [one for one in server.clients if one.hello.namespace == namespace]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Failed(f"Invalid name '{name}': lowercase letters, digits and underscores only.")


def _own(call: Call, server: Server, what: str) -> None:
    if call.uid not in (0, server.uid):
        raise Failed(_denial(call, what))


def _denial(call: Call, what: str) -> str:
    return f"Insufficient privileges for UID {call.uid}. '{what}' requires server owner."


Handler = Callable[[Machine, Call], "str | Answer"]
HANDLERS: dict[tuple[str, str], Handler] = {
    ("server", "create"): server_create,
    ("server", "delete"): server_delete,
    ("server", "list"): server_list,
    ("server", "set"): server_set,
    ("server", "get"): server_get,
    ("namespace", "create"): namespace_create,
    ("namespace", "delete"): namespace_delete,
    ("namespace", "list"): namespace_list,
    ("namespace", "set"): namespace_set,
    ("namespace", "get"): namespace_get,
    ("client", "list"): client_list,
    ("client", "get"): client_get,
    ("client", "terminate"): client_terminate,
    ("device", "list"): device_list,
    **v3_extra.HANDLERS,
}
