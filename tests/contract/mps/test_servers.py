# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers: one UID at a time, slow starts, failed starts, faults that last as long as a client."""

from __future__ import annotations

import pytest

from fakes.mps import ClientState, Options, Rig, Script, ServerState, Start


def test_a_starting_server_keeps_its_clients_waiting() -> None:
    rig = Rig(Script(starts=(Start(init_s=3.0),)))
    client = rig.client()
    assert rig.run(f"get_server_status {rig.server.pid}") == "INITIALIZING"
    rig.pass_time(2.9)
    assert client.state is ClientState.WAITING
    rig.pass_time(0.1)
    assert client.state is ClientState.ATTACHED
    assert rig.run(f"get_server_status {rig.server.pid}") == "ACTIVE"


def test_another_uid_waits_until_every_client_of_the_first_left() -> None:
    rig = Rig()
    first, second = rig.client(uid=1000), rig.client(uid=1000)
    other = rig.client(uid=2000)
    old = rig.server.pid
    rig.machine.disconnect(first, clean=True)
    assert other.state is ClientState.WAITING
    rig.machine.disconnect(second, clean=True)
    assert other.state is ClientState.ATTACHED
    assert (rig.server.uid, rig.server.pid != old) == (2000, True)


def test_the_first_uid_again_goes_behind_the_one_that_waits() -> None:
    rig = Rig()
    rig.client(uid=1000)
    other, again = rig.client(uid=2000), rig.client(uid=1000)
    assert [other.state, again.state] == [ClientState.WAITING, ClientState.WAITING]


def test_a_multi_user_server_takes_everyone() -> None:
    rig = Rig(options=Options(multiuser=True))
    clients = [rig.client(uid=uid) for uid in (0, 1000, 2000)]
    assert {client.state for client in clients} == {ClientState.ATTACHED}
    assert rig.server.uid == 0


def test_a_server_that_fails_to_start_refuses_its_clients_and_says_status_1() -> None:
    rig = Rig(Script(starts=(Start(exit_status=1), Start())))
    refused = rig.client()
    assert refused.inbox == [{"event": "refused", "error": "CUDA_ERROR_MPS_CONNECTION_FAILED"}]
    assert any(line.endswith("exited with status 1") for line in rig.logs.control_lines)
    assert rig.client().state is ClientState.ATTACHED


def test_a_daemon_that_sees_no_gpu_cannot_start_a_server() -> None:
    rig = Rig(Script(gpus=()), Options(visible_devices="nonsense"))
    assert rig.client().state is ClientState.REFUSED


def test_a_fault_hits_every_client_and_lasts_until_the_last_one_left() -> None:
    rig = Rig(Script(recover_s=1.0))
    culprit, victim = rig.client(), rig.client()
    rig.machine.client_fault(culprit)
    assert victim.inbox[-1] == {"event": "error", "error": "CUDA_ERROR_ILLEGAL_ADDRESS"}
    assert rig.server.state is ServerState.FAULT
    assert rig.client().inbox[-1]["error"] == "CUDA_ERROR_MPS_SERVER_NOT_READY"
    rig.machine.disconnect(culprit, clean=True)
    rig.pass_time(10)
    assert rig.server.state is ServerState.FAULT
    rig.machine.disconnect(victim, clean=True)
    rig.pass_time(1.0)
    assert rig.server.state is ServerState.ACTIVE
    assert rig.client().state is ClientState.ATTACHED


def test_only_the_server_log_names_the_culprit() -> None:
    rig = Rig()
    culprit, victim = rig.client(), rig.client()
    rig.machine.client_fault(culprit)
    assert str(culprit.hello.pid) in rig.logs.server_lines[-1]
    assert str(culprit.hello.pid) not in str(victim.inbox)


def test_a_dead_server_takes_its_clients_along_and_the_next_client_starts_another() -> None:
    rig = Rig()
    client, old = rig.client(), rig.server.pid
    rig.machine.server_exited(old, -9)
    assert client.inbox[-1]["error"] == "CUDA_ERROR_MPS_RPC_FAILURE"
    assert rig.run("get_server_list") == ""
    rig.client()
    assert rig.server.pid != old


def test_start_server_is_refused_beside_an_active_one() -> None:
    rig = Rig()
    assert rig.run("start_server -uid 1000") == ""
    assert rig.server.uid == 1000
    assert rig.run("start_server -uid 2000") == "A server is already running"


def test_a_hung_server_answers_nothing_until_it_recovers() -> None:
    rig = Rig()
    rig.client()
    rig.machine.do("hang_server")
    waiting = rig.client()
    assert not rig.ask(f"get_server_status {rig.server.pid}").done
    rig.machine.do("recover")
    assert waiting.state is ClientState.ATTACHED
    assert rig.run(f"get_server_status {rig.server.pid}") == "ACTIVE"


@pytest.mark.parametrize(
    "command", ["get_server_status 1", "get_client_list", "terminate_client 1 2", "ps -p 1"]
)
def test_an_unknown_server_is_named(command: str) -> None:
    assert "not found" in Rig().run(command)
