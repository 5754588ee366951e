# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of protocol v2, in the words of the real binary.

Texts of refusals are our own wherever NVIDIA publishes none; the README lists which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fake_mps.endings import quit_daemon, terminate
from fake_mps.hardware import Gpu, find_gpu, parse_memory_mib
from fake_mps.machine import Machine
from fake_mps.model import Answer, Client, Limits, Server
from fake_mps.partitions import INVALID, shortened

Arguments = Sequence[str]


class Refused(Exception):
    """A command that cannot be carried out; the text is its answer."""


def carry_out(machine: Machine, words: Sequence[str]) -> Answer:
    """Run one command; the answer is done unless the command blocks or its server hangs."""
    answer = Answer()
    handler = _HANDLERS.get(words[0])
    try:
        if handler is None:
            raise Refused(f"Unknown command: {words[0]}")
        result = handler(machine, words[1:])
    except Refused as refusal:
        result = str(refusal)
    if isinstance(result, Answer):
        return result
    answer.finish(result)
    return answer


# -- lists -----------------------------------------------------------------------------------------


def _server_list(machine: Machine, _: Arguments) -> str:
    return "\n".join(str(server.pid) for server in machine.servers.values())


def _server_status(machine: Machine, args: Arguments) -> str | Answer:
    server = _server(machine, args)
    return Answer() if server.hung else server.state.value


def _client_list(machine: Machine, args: Arguments) -> str | Answer:
    server = _server(machine, args)
    return Answer() if server.hung else "\n".join(str(one.hello.pid) for one in server.clients)


def _device_client_list(machine: Machine, args: Arguments) -> str:
    servers = [_server(machine, args)] if args else list(machine.servers.values())
    lines: list[str] = []
    for gpu in machine.gpus:
        lines.append(gpu.uuid)
        lines += [
            str(client.hello.pid)
            for server in servers
            for client in server.clients
            if client.gpu is not None and client.gpu.uuid == gpu.uuid
        ]
    return "\n".join(lines)


def _ps(machine: Machine, args: Arguments) -> str:
    servers = list(machine.servers.values())
    if args:
        if args[0] != "-p" or len(args) != 2:
            raise Refused("Usage: ps [-p <server PID>]")
        servers = [_server(machine, args[1:])]
    rows = [_ps_row("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")]
    for server in servers:
        for client in server.clients:
            hello, gpu = client.hello, client.gpu
            assert gpu is not None
            device = "-".join(gpu.uuid.split("-")[:4])
            rows.append(
                _ps_row(
                    hello.pid, client.id, server.pid, device, hello.pid_namespace, hello.command
                )
            )
    return "\n".join(rows)


def _ps_row(
    pid: object, number: object, server: object, device: object, space: object, command: object
) -> str:
    return f"{pid:<4} {number:<2}  {server:<6}  {device:<17}  {space:<10}  {command}"


# -- limits ----------------------------------------------------------------------------------------


def _set_default_percent(machine: Machine, args: Arguments) -> str:
    percent = _percent(args, 0)
    machine.default_percent = percent
    return f"{percent:.1f}"


def _get_default_percent(machine: Machine, _: Arguments) -> str:
    return f"{machine.default_percent:.1f}"


def _set_percent(machine: Machine, args: Arguments) -> str:
    server, percent = _server(machine, args), _percent(args, 1)
    server.limits.percent = percent
    machine.logs.server(server.pid, f"Active Threads Percentage set to {percent:.1f}")
    return f"{percent:.1f}"


def _get_percent(machine: Machine, args: Arguments) -> str:
    percent = _server(machine, args).limits.percent
    return "100.0" if percent is None else f"{percent:.1f}"


def _set_default_memory(machine: Machine, args: Arguments) -> str:
    cap = _memory(args, 1)
    machine.default_memory.pop(args[0], None)  # whichever was set last wins at the next start
    machine.default_memory[args[0]] = cap
    return ""


def _get_default_memory(machine: Machine, args: Arguments) -> str:
    return _cap_text(machine.default_memory, args[0] if args else "")


def _set_memory(machine: Machine, args: Arguments) -> str:
    server, gpu, cap = _server(machine, args), _gpu(machine, args, 1), _memory(args, 2)
    server.limits.memory_mib[gpu.uuid] = cap
    machine.log_limits(server, Limits(memory_mib={gpu.uuid: cap}))
    return ""


def _get_memory(machine: Machine, args: Arguments) -> str:
    caps = _server(machine, args).limits.memory_mib
    return _cap_text(caps, _gpu(machine, args, 1).uuid)


def _cap_text(caps: Mapping[str, int], device: str) -> str:
    return f"{caps[device]}M" if device in caps else "No limit"


def _set_default_priority(machine: Machine, args: Arguments) -> str:
    if tuple(args) not in (("0",), ("1",)):
        raise Refused("Client priority is 0 (normal) or 1 (below normal)")
    machine.default_priority = int(args[0])
    for server in machine.servers.values():
        server.limits.priority = machine.default_priority
    return args[0]


def _get_default_priority(machine: Machine, _: Arguments) -> str:
    return str(machine.default_priority)


# -- life ------------------------------------------------------------------------------------------


def _start_server(machine: Machine, args: Arguments) -> str:
    if len(args) < 2 or args[0] != "-uid" or not args[1].isdigit():
        raise Refused("Usage: start_server -uid <user id> [-mlopart]")
    if machine.servers:
        raise Refused("A server is already running")
    machine.start_server(machine.server_uid(int(args[1])), None)
    return ""


def _shutdown_server(machine: Machine, args: Arguments) -> str:
    server = _server(machine, args)
    if server.clients and "-f" not in args:
        raise Refused(f"Server {server.pid} has clients; -f does not wait for them")
    machine.stop_server(server)
    return ""


def _terminate(machine: Machine, args: Arguments) -> str | Answer:
    server = _server(machine, args)
    if server.hung:
        return Answer()
    if len(args) != 2:
        raise Refused("Usage: terminate_client <server PID> <client PID>")
    client = _client(server, args[1])
    if client is None:
        return "CUDA_ERROR_INVALID_VALUE"
    return terminate(machine, server, client)


def _quit(machine: Machine, args: Arguments) -> Answer:
    if args and (len(args) != 2 or args[0] != "-t" or not args[1].isdigit()):
        raise Refused("Usage: quit [-t <seconds>]")
    answer = Answer()
    quit_daemon(machine, answer, float(args[1]) if args else None)
    return answer


# -- devices and partitions ------------------------------------------------------------------------


def _device_query(machine: Machine, args: Arguments) -> str:
    csv = "--csv" in args
    rest = [word for word in args if word != "--csv"]
    gpus = _server(machine, rest).gpus if rest else machine.gpus
    rows = [("ORDINAL", "UUID", "NAME", "SM", "MEMORY")]
    rows += [
        (str(at), gpu.uuid, gpu.name, str(gpu.sm_count), f"{gpu.memory_mib}M")
        for at, gpu in enumerate(gpus)
    ]
    if csv:
        return "\n".join(",".join(row) for row in rows)
    return "\n".join(f"{a:<8} {b:<41} {c:<24} {d:<4} {e}" for a, b, c, d, e in rows)


def _sm_partition(machine: Machine, args: Arguments) -> str:
    if not machine.options.static:
        raise Refused("Static SM partitioning is not enabled")
    if len(args) == 3 and args[0] == "add" and args[2].isdigit():
        gpu, chunks = _gpu(machine, args, 1), int(args[2])
        if any(client.gpu is gpu for one in machine.servers.values() for client in one.clients):
            raise Refused(f"Device {gpu.uuid} has active clients, error {INVALID}")
        row = machine.partitions.add(gpu, chunks)
        if row is None:
            raise Refused(
                f"Failed to fulfill the requested SM partition of {chunks} chunks, error {INVALID}"
            )
        return f"{row.gpu}/{row.identifier}"
    if len(args) == 3 and args[0] == "rm":
        return _remove_partition(machine, _gpu(machine, args, 1), args[2])
    raise Refused("Usage: sm_partition add <uuid> <chunks> | rm <uuid> <partition>")


def _remove_partition(machine: Machine, gpu: Gpu, identifier: str) -> str:
    row = machine.partitions.find(gpu, identifier.rpartition(f"{gpu.uuid}/")[2])
    if row is None:
        raise Refused(f"No such partition, error {INVALID}")
    if _in_use(machine, row.identifier):
        raise Refused(f"Partition {row.identifier} has active clients, error {INVALID}")
    machine.partitions.rows.remove(row)
    return ""


def _in_use(machine: Machine, identifier: str) -> bool:
    return any(
        (client.hello.partition or "").endswith(identifier)
        for server in machine.servers.values()
        for client in server.clients
    )


def _lspart(machine: Machine, _: Arguments) -> str:
    rows = [
        _part_row("GPU", "Partition", "free", "used", "free", "used", "clients"),
        _part_row("", "", "chunk", "chunk", "SM", "SM", ""),
    ]
    for gpu in machine.gpus:
        short = shortened(machine.gpus, gpu.uuid)
        (free, used), (free_sm, used_sm) = (
            machine.partitions.chunks(gpu),
            machine.partitions.sms(gpu),
        )
        rows.append(_part_row(short, "-", free, used, free_sm, used_sm, "-"))
        rows += [
            _part_row(
                short,
                part.identifier[:8],
                "-",
                part.chunks,
                "-",
                part.sm_count,
                "Yes" if _in_use(machine, part.identifier) else "No",
            )
            for part in machine.partitions.of(gpu)
        ]
    return "\n".join(row.rstrip() for row in rows)


def _part_row(*cells: object) -> str:
    widths = (18, 11, 6, 6, 5, 5, 7)
    return " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True))


# -- arguments -------------------------------------------------------------------------------------


def _server(machine: Machine, args: Arguments) -> Server:
    wanted = args[0] if args else "(none)"
    found = [one for one in machine.servers.values() if str(one.pid) == wanted]
    if not found:
        raise Refused(f"Server {wanted} not found")
    return found[0]


def _client(server: Server, pid: str) -> Client | None:
    return next((one for one in server.clients if str(one.hello.pid) == pid), None)


def _percent(args: Arguments, at: int) -> float:
    try:
        value = float(args[at])
    except (IndexError, ValueError):
        value = 0.0
    if not 0 < value <= 100:
        raise Refused("Active thread percentage must be above 0 and at most 100")
    return value


def _gpu(machine: Machine, args: Arguments, at: int) -> Gpu:
    gpu = find_gpu(machine.gpus, args[at]) if len(args) > at else None
    if gpu is None:
        raise Refused(f"Invalid device {args[at] if len(args) > at else '(none)'}")
    return gpu


def _memory(args: Arguments, at: int) -> int:
    try:
        return parse_memory_mib(args[at])
    except (IndexError, ValueError) as error:
        raise Refused("Memory limit must be an integer followed by G or M") from error


_HANDLERS: Mapping[str, Callable[[Machine, Arguments], str | Answer]] = {
    "get_server_list": _server_list,
    "get_server_status": _server_status,
    "start_server": _start_server,
    "shutdown_server": _shutdown_server,
    "get_client_list": _client_list,
    "get_device_client_list": _device_client_list,
    "ps": _ps,
    "set_default_active_thread_percentage": _set_default_percent,
    "get_default_active_thread_percentage": _get_default_percent,
    "set_active_thread_percentage": _set_percent,
    "get_active_thread_percentage": _get_percent,
    "set_default_device_pinned_mem_limit": _set_default_memory,
    "get_default_device_pinned_mem_limit": _get_default_memory,
    "set_device_pinned_mem_limit": _set_memory,
    "get_device_pinned_mem_limit": _get_memory,
    "set_default_client_priority": _set_default_priority,
    "get_default_client_priority": _get_default_priority,
    "terminate_client": _terminate,
    "device_query": _device_query,
    "sm_partition": _sm_partition,
    "lspart": _lspart,
    "quit": _quit,
}
COMMANDS = tuple(_HANDLERS)
