# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to one device's daemon or server: it serves again in time, no one else notices.

Times are virtual: what is measured is what the supervisor waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fakes.mps import Client, ClientState, Script, read_script, run_line
from fakes.mps_node import A, B, MpsNode, on_node, refuse_many_users
from ullage.api.devices import MpsState
from ullage_node.times import SERVER_HEALED_S


def harm(action: str) -> Callable[[MpsNode], None]:
    return lambda node: node.programs.machine(A).do(action)


def kill_daemon(node: MpsNode) -> None:
    node.programs.machine(A).crashed = True


HARMS = {
    "daemon killed": kill_daemon,
    "daemon hangs": harm("hang_control"),
    "server killed": harm("crash_server"),
    "server hangs": harm("hang_server"),
    "server faults": harm("fault"),
}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("what", HARMS)
@pytest.mark.parametrize("clients", ["leave", "stay"])
def test_it_serves_again_in_time_and_the_other_device_is_untouched(
    what: str, clients: str, protocol: int
) -> None:
    async def live(node: MpsNode) -> None:
        ours = [node.client(A, pid) for pid in (9001, 9002)]
        other = node.client(B, 9003)
        await asyncio.sleep(7)
        HARMS[what](node)
        begun = asyncio.get_running_loop().time()
        if (what, protocol) == ("server hangs", 3):
            node.client(A, 9005)  # protocol 3 lists without the server: who waits gives it away
        await node.until(lambda server: not server.ready)
        if clients == "leave":
            _leave(node, ours)
        await node.ready()
        assert asyncio.get_running_loop().time() - begun <= SERVER_HEALED_S
        newcomer = node.client(A, 9004)
        assert newcomer.state is ClientState.ATTACHED
        assert other.state is ClientState.ATTACHED
        assert 9003 not in node.programs.terminated
        assert not other.inbox[1:], "the tenant of the other device was told something"

    node = on_node(live, Script(protocols=(2, 3)), protocol=protocol)
    assert node.states(B) == {MpsState.ACTIVE}


def _leave(node: MpsNode, clients: list[Client]) -> None:
    machine = node.programs.machine(A)
    for client in clients:
        if machine.server_of(client) is not None:
            machine.disconnect(client, clean=True)


def test_a_fault_that_clients_leave_heals_without_a_new_daemon() -> None:
    async def live(node: MpsNode) -> None:
        client = node.client(A)
        await node.look()
        node.programs.machine(A).do("fault")
        await node.until(lambda server: server.state is MpsState.FAULT)
        starts = node.programs.starts
        _leave(node, [client])
        await node.ready()
        server = await node.look()
        assert (server.faults, server.restarts, node.programs.starts) == (1, 0, starts)

    on_node(live)


def test_clients_that_stay_after_a_fault_are_terminated_before_their_server_ends() -> None:
    async def live(node: MpsNode) -> None:
        clients = [node.client(A, pid) for pid in (9001, 9002)]
        await node.look()
        node.programs.machine(A).do("fault")
        await node.until(lambda server: server.state is MpsState.FAULT)
        await node.ready()
        assert node.programs.terminated == [9001, 9002]
        assert all(client.state is ClientState.TERMINATED for client in clients)

    on_node(live)


def test_a_queue_behind_a_client_of_another_uid_is_noticed_and_cleared() -> None:
    async def live(node: MpsNode) -> None:
        for pid, uid in ((9001, 1000), (9002, 0)):
            waiting = node.client(A, pid, uid=uid)
            assert waiting.state is ClientState.WAITING
        begun = asyncio.get_running_loop().time()
        restarts = (await node.look()).restarts
        await node.until(lambda server: server.restarts > restarts)
        await node.ready()
        assert asyncio.get_running_loop().time() - begun <= SERVER_HEALED_S

    node = on_node(live, Script(wedge_uid=0), harm=refuse_many_users)
    assert node.states(B) == {MpsState.ACTIVE}


@pytest.mark.parametrize(
    "answer", ["", "RUNNING", "gibberish 12", "ACTIVE FAULT", "Server 9 not found"]
)
def test_an_answer_that_cannot_be_read_is_never_healthy(answer: str) -> None:
    script = read_script(
        {"commands": [{"match": "get_server_status*", "reply": answer, "times": -1}]}
    )

    async def live(node: MpsNode) -> None:
        node.programs.scripts[A] = script
        kill_daemon(node)
        for _ in range(60):
            await asyncio.sleep(1)
            assert not (await node.look()).ready
        assert (await node.look(B)).ready

    node = on_node(live)
    assert MpsState.UNKNOWN in node.states(A)


def test_a_server_that_never_starts_is_tried_again_with_growing_pauses() -> None:
    async def live(node: MpsNode) -> None:
        node.programs.scripts[A] = read_script({"starts": [{"exit_status": 1}]})
        kill_daemon(node)
        before = node.programs.starts
        for _ in range(120):
            await asyncio.sleep(1)
            assert not (await node.look()).ready
        assert 3 <= node.programs.starts - before <= 12
        del node.programs.scripts[A]
        await node.ready()

    on_node(live)


def test_defaults_that_someone_changed_are_set_again_and_after_a_restart_too() -> None:
    async def live(node: MpsNode) -> None:
        assert default_percent(node, "set_default_active_thread_percentage 10") == "10.0"
        await asyncio.sleep(6)
        assert default_percent(node) == "100.0"
        kill_daemon(node)
        await node.until(lambda server: not server.ready)
        await node.ready()
        assert default_percent(node) == "100.0"

    on_node(live)


def default_percent(
    node: MpsNode, command: str = "get_default_active_thread_percentage"
) -> str | None:
    return run_line(node.programs.machine(A), command).text
