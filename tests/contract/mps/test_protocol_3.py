# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Protocol v3: named servers, namespaces, and what was measured to differ from its pages."""

from __future__ import annotations

import pytest

from fakes.mps import DEFAULT_UUID as UUID
from fakes.mps import ClientState, Factory, Options, Rig, Script


@pytest.fixture
def rig() -> Rig:
    rig = Rig(Script(protocols=(2, 3)), Options(protocol=3, multiuser=True))
    assert rig.run("server create training") == ""
    assert rig.run("namespace create a1 --server=training") == ""
    return rig


def test_several_servers_run_at_once(rig: Rig) -> None:
    rig.run("server create serving")
    rows = rig.run("server list --format=csv,noheader").splitlines()
    assert [row.split(",")[0] for row in rows] == ["training", "serving"]
    assert rows[0].split(",")[3:] == ["Ready", "/tmp/nvidia-mps/training", "all", "-"]


def test_the_smaller_of_namespace_and_environment_counts(rig: Rig) -> None:
    rig.run("namespace set a1 --server=training --active-thread-percentage=25")
    sms = [
        rig.client(server="training", namespace="a1", percent=percent).sm_count
        for percent in (None, 50, 10)
    ]
    assert sms == [32, 32, 12]


def test_a_servers_limits_apply_to_default_and_to_nothing_else(rig: Rig) -> None:
    assert rig.client(server="training").sm_count == 132
    rig.machine.stop_server(rig.server)
    rig.run("server create training")
    rig.run("namespace create a1 --server=training")
    rig.run("server set training --active-thread-percentage=10 --pinned-memory-limit=1G")
    capped, free = rig.client(server="training"), rig.client(server="training", namespace="a1")
    assert (capped.sm_count, capped.memory_cap_mib) == (12, 1024)
    assert (free.sm_count, free.memory_cap_mib) == (132, None)


def test_a_namespace_with_a_client_cannot_be_changed(rig: Rig) -> None:
    client = rig.client(server="training", namespace="a1")
    answer = rig.ask("namespace set a1 --server=training --active-thread-percentage=25")
    assert (answer.exit_code, "active clients" in str(answer.text)) == (1, True)
    assert rig.ask("namespace delete a1 --server=training").exit_code == 1
    rig.machine.disconnect(client, clean=True)
    assert rig.run("namespace set a1 --server=training --active-thread-percentage=25") == ""
    assert rig.run("namespace get a1 training active-thread-percentage") == "25"


def test_other_users_may_look_and_not_touch(rig: Rig) -> None:
    answer = rig.ask("namespace set a1 --server=training --active-thread-percentage=100", 60000)
    assert answer.text == (
        "Insufficient privileges for UID 60000. 'NAMESPACE SET' requires server owner."
    )
    assert answer.exit_code == 1
    assert "a1" in rig.run("namespace list --format=csv,noheader", 60000)


def test_without_multi_user_mode_only_the_owner_attaches() -> None:
    rig = Rig(Script(protocols=(3,)), Options(protocol=3))
    rig.run("server create training")
    assert rig.client(uid=1000, server="training").state is ClientState.REFUSED
    assert rig.client(uid=1000).state is ClientState.ATTACHED
    assert "uid_1000" in rig.machine.servers


def test_multi_user_mode_makes_no_server_for_anyone_else(rig: Rig) -> None:
    assert rig.ask("server create mine --uid=1000").exit_code == 1


def test_the_table_cuts_pids_and_csv_does_not(rig: Rig) -> None:
    rig.client(server="training", pid=3165259, command="VLLM::EngineCore")
    head, row = rig.run("client list").splitlines()
    assert head.split() == ["PID", "SERVER", "DEVICE", "MAWS", "NS", "CMD"]
    assert row.split() == [
        "316...",
        "training",
        UUID,
        "training/default",
        "(0)",
        "VLLM::EngineCore",
    ]
    csv = rig.run("client list --format=csv,noheader")
    assert csv == "3165259,training,0,default,VLLM::EngineCore"


def test_csv_rows_can_be_those_that_were_captured() -> None:
    rig = Rig(
        Script(protocols=(3,), v3_client_rows="captured"), Options(protocol=3, multiuser=True)
    )
    rig.run("server create srv")
    rig.client(server="srv", pid=3167082, command="VLLM::EngineCore")
    csv = rig.run("client list --format=csv,noheader")
    assert csv == f"3167082,srv,{UUID},srv/default (0),VLLM::EngineCore"


def test_the_published_client_row(rig: Rig) -> None:
    rig.client(server="training", pid=51023, command="python train.py")
    row = rig.run("client list --server=training --format=csv,noheader")
    assert row == "51023,training,0,default,python train.py"


def test_client_terminate_tears_down_and_reports_by_status(rig: Rig) -> None:
    client = rig.client(server="training", namespace="a1")
    assert rig.run(f"client terminate {client.hello.pid}") == ""
    assert client.inbox[-1]["error"] == "CUDA_ERROR_MPS_CLIENT_TERMINATED"
    assert rig.ask(f"client terminate {client.hello.pid}").exit_code == 1


def test_a_client_chooses_its_partition_and_nothing_checks_it(rig: Rig) -> None:
    rig.run("namespace set a1 --server=training --active-thread-percentage=25")
    said = rig.run(f"sm-partition create large --server=training --device={UUID} --chunks=16")
    assert said.splitlines()[0] == f"SM partition 'large' created on device {UUID} (sm-count=128)"
    name, _, identifier = said.splitlines()[1].partition("=")
    assert name == "CUDA_MPS_SM_PARTITION"
    client = rig.client(server="training", namespace="a1", partition=identifier)
    assert client.sm_count == 128


def test_a_wrong_gpu_makes_a_server_that_vanishes_and_clients_without_limits(
    scripted: Factory,
) -> None:
    mps = scripted(gpus=[{"uuid": UUID}], protocols=[2, 3])
    mps.start("-p", "3", "-m")
    created = mps.call("server", "create", "t", "--allowed-devices=GPU-ffffffff-0000")
    assert created == (0, "")
    assert mps.call("server", "list", "--format=csv,noheader") == (0, "")
    client = mps.client(
        CUDA_MPS_PIPE_DIRECTORY=f"{mps.pipe}/t/a1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10"
    )
    said = client.report()
    assert (said["event"], said["sm_count"]) == ("unlimited", 132)


def test_a_client_picks_its_namespace_by_directory(scripted: Factory) -> None:
    mps = scripted(protocols=[2, 3])
    mps.start("-p", "3", "-m")
    mps.call("server", "create", "t")
    mps.call("namespace", "create", "a1", "--server=t")
    mps.call("namespace", "set", "a1", "--server=t", "--active-thread-percentage=50")
    pipe = mps.call("namespace", "get", "a1", "t", "pipe-directory")[1]
    inside = mps.client(CUDA_MPS_PIPE_DIRECTORY=pipe, uid=60000).report()
    beside = mps.client(CUDA_MPS_PIPE_DIRECTORY=f"{mps.pipe}/t").report()
    assert (inside["namespace"], inside["sm_count"]) == ("a1", 66)
    assert (beside["namespace"], beside["sm_count"]) == ("default", 132)
