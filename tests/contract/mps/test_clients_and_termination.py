# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clients: contexts, memory, pods of several processes; and the ways in which they end."""

from __future__ import annotations

import pytest

from fakes.mps import ClientState, Factory, Gpu, Rig, Script, ServerState, Termination


@pytest.mark.parametrize(
    ("cuda", "gpu", "limit"),
    [("13.0", Gpu(), 48), ("13.1", Gpu(), 60), ("13.0", Gpu(pre_volta=True), 16)],
)
def test_contexts_of_a_device_are_limited(cuda: str, gpu: Gpu, limit: int) -> None:
    rig = Rig(Script(cuda_version=cuda, gpus=(gpu,)))
    clients = [rig.client() for _ in range(limit)]
    assert {client.state for client in clients} == {ClientState.ATTACHED}
    assert rig.client().inbox[-1]["error"] == "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"
    rig.machine.disconnect(clients[0], clean=True)
    assert rig.client().state is ClientState.ATTACHED


def test_contexts_count_not_processes() -> None:
    rig = Rig()
    rig.client(contexts=40)
    assert rig.client(contexts=9).state is ClientState.REFUSED
    assert rig.client(contexts=8).state is ClientState.ATTACHED


def test_more_connections_leave_room_for_fewer_clients() -> None:
    rig = Rig()
    states = [rig.client(connections=8).state for _ in range(13)]
    assert states == [ClientState.ATTACHED] * 12 + [ClientState.REFUSED]


def test_a_pod_of_three_processes_gets_its_cap_three_times(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    pod = mps.client(
        "--processes", "3", "--allocate-mib", "900", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G"
    )
    said = [pod.report() for _ in range(6)]
    used = [message["used_mib"] for message in said if message["event"] == "allocated"]
    assert used == [900, 900, 900]
    pids = {str(message["pid"]) for message in said}
    assert set(mps.ask(f"get_client_list {mps.server()}").split()) == pids


def test_an_allocation_beyond_the_cap_is_out_of_memory(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    client = mps.client(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=10G")
    client.report()
    client.order("allocate 9728")
    assert client.report()["used_mib"] == 9728
    client.order("allocate 1")
    assert client.report()["error"] == "CUDA_ERROR_OUT_OF_MEMORY"


def test_a_fault_in_one_process_reaches_the_other(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    culprit, victim = mps.client(), mps.client()
    culprit.report()
    victim.report()
    culprit.order("fault CUDA_ERROR_ILLEGAL_ADDRESS")
    assert victim.report()["error"] == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert mps.ask(f"get_server_status {mps.server()}") == "FAULT"
    assert mps.client().report()["code"] == 807
    assert (culprit.leave(), victim.leave()) == (1, 1)


def test_terminate_client_blocks_for_the_scripted_time() -> None:
    rig = Rig(Script(terminations=(Termination(seconds=4.0),)))
    client = rig.client()
    answer = rig.ask(f"terminate_client {rig.server.pid} {client.hello.pid}")
    assert rig.client().inbox[-1]["error"] == "CUDA_ERROR_MPS_SERVER_NOT_READY"
    rig.pass_time(3.9)
    assert not answer.done
    rig.pass_time(0.1)
    assert answer.text == "0"
    assert client.inbox[-1]["error"] == "CUDA_ERROR_MPS_CLIENT_TERMINATED"
    assert rig.run(f"get_client_list {rig.server.pid}") == ""


def test_a_failed_termination_prints_an_error_name_and_keeps_the_client() -> None:
    plans = (Termination(result="CUDA_ERROR_UNKNOWN"), Termination(), Termination(hang=True))
    rig = Rig(Script(terminations=plans))
    client, hung = rig.client(), rig.client()
    line = f"terminate_client {rig.server.pid} {client.hello.pid}"
    assert rig.run(line) == "CUDA_ERROR_UNKNOWN"
    assert client.state is ClientState.ATTACHED
    assert rig.run(line) == "0"
    answer = rig.ask(f"terminate_client {rig.server.pid} {hung.hello.pid}")
    rig.pass_time(3600)
    assert not answer.done


def test_a_terminated_client_may_stay_listed_for_a_while() -> None:
    rig = Rig(Script(terminations=(Termination(linger_s=2.0),)))
    client = rig.client()
    assert rig.run(f"terminate_client {rig.server.pid} {client.hello.pid}") == "0"
    assert rig.run(f"get_client_list {rig.server.pid}") == str(client.hello.pid)
    rig.pass_time(2.0)
    assert rig.run(f"get_client_list {rig.server.pid}") == ""


@pytest.mark.parametrize("damage", ["none", "fault", "hang", "exit"])
def test_a_client_killed_with_outstanding_work_damages_its_server(damage: str) -> None:
    rig = Rig(Script(killed_client=damage))
    victim, killed = rig.client(), rig.client()
    server = rig.server
    killed.busy = True
    rig.machine.disconnect(killed, clean=False)
    assert server.hung is (damage == "hang")
    assert server.gone is (damage == "exit")
    assert (server.state is ServerState.FAULT) is (damage == "fault")
    assert (victim.inbox[-1]["event"] == "error") is (damage in ("fault", "exit"))


@pytest.mark.parametrize("case", ["idle", "clean", "terminated first"])
def test_an_end_without_outstanding_work_harms_no_one(case: str) -> None:
    rig = Rig()
    other, leaving = rig.client(), rig.client()
    leaving.busy = case != "idle"
    if case == "terminated first":
        rig.run(f"terminate_client {rig.server.pid} {leaving.hello.pid}")
    rig.machine.disconnect(leaving, clean=case == "clean")
    assert rig.server.state is ServerState.ACTIVE
    assert other.inbox[-1]["event"] == "attached"


def test_random_damage_is_the_same_for_the_same_seed() -> None:
    def damage(seed: int) -> list[bool]:
        found = []
        rig = Rig(Script(killed_client="random", seed=seed))
        for _ in range(12):
            rig.client()
            client = rig.client()
            client.busy = True
            rig.machine.disconnect(client, clean=False)
            found.append(bool(rig.machine.servers))
            for server in list(rig.machine.servers.values()):
                rig.machine.stop_server(server)
        return found

    assert damage(7) == damage(7)
    assert len({tuple(damage(seed)) for seed in range(5)}) > 1


def test_sigkill_of_a_busy_process_is_seen_as_a_fault(scripted: Factory) -> None:
    mps = scripted(recover_s=0.0)
    mps.start()
    other, busy = mps.client(), mps.client("--busy")
    other.report()
    busy.report()
    busy.kill()
    assert other.report()["error"] == "CUDA_ERROR_LAUNCH_FAILED"
    assert mps.ask(f"get_server_status {mps.server()}") == "FAULT"


def test_quit_with_a_time_waits_for_the_clients() -> None:
    rig = Rig()
    client = rig.client()
    answer = rig.ask("quit -t 10")
    rig.pass_time(1.0)
    assert not answer.done
    rig.machine.disconnect(client, clean=True)
    rig.pass_time(0.1)
    assert answer.done
    assert rig.machine.stopped
