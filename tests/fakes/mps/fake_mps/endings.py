# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that take time: tearing down one client, and leaving altogether."""

from __future__ import annotations

from fake_mps.machine import Machine
from fake_mps.model import Answer, Client, ClientState, Server
from fake_mps.script import Termination

TERMINATED = "CUDA_ERROR_MPS_CLIENT_TERMINATED"
_LOOK_S = 0.05


def terminate(machine: Machine, server: Server, client: Client) -> Answer:
    """Tear a client's contexts down; the answer comes when that is done."""
    answer = Answer()
    plans = machine.script.terminations
    plan = plans[min(machine.terminations, len(plans) - 1)]
    machine.terminations += 1
    server.terminating += 1
    if not plan.hang:
        machine.timers.after(plan.seconds, lambda: _torn(machine, server, client, plan, answer))
    return answer


def _torn(
    machine: Machine, server: Server, client: Client, plan: Termination, answer: Answer
) -> None:
    server.terminating -= 1
    if plan.result == "0" and client in server.clients:
        client.state = ClientState.TERMINATED
        client.inbox.append({"event": "error", "error": TERMINATED})
        if plan.linger_s:
            machine.timers.after(plan.linger_s, lambda: _forget(machine, server, client))
        else:
            _forget(machine, server, client)
    answer.finish(plan.result)


def _forget(machine: Machine, server: Server, client: Client) -> None:
    if client in server.clients:
        server.clients.remove(client)
        machine.check_recovery(server)
        machine.serve_queue()


def quit_daemon(machine: Machine, answer: Answer, timeout_s: float | None) -> None:
    """Stop the servers and the daemon, at once or when the clients left within the time."""
    left_s = timeout_s or 0.0

    def look() -> None:
        nonlocal left_s
        left_s -= _LOOK_S
        busy = any(server.clients for server in machine.servers.values())
        if busy and left_s > 0:
            machine.timers.after(_LOOK_S, look)
        else:
            _stop(machine, answer)

    look()


def _stop(machine: Machine, answer: Answer) -> None:
    if not machine.stopped:
        machine.stopped = True
        for server in list(machine.servers.values()):
            machine.stop_server(server)
        machine.logs.control("Exit")
    answer.finish("")
