# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the published transcripts show; runs against the fake and against the real binary."""

from __future__ import annotations

import re

from fakes.mps import Installation

CONTROL_LINE = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} Control +\d+\] "


def test_without_a_daemon_commands_say_so_and_fail(mps: Installation) -> None:
    assert mps.call(typed="get_server_list\n") == (1, "Cannot find MPS control daemon process")


def test_a_second_daemon_for_the_same_directory_is_refused(mps: Installation) -> None:
    mps.start()
    status, text = mps.call("-d")
    assert (status, text) == (1, "An instance of this daemon is already running")


def test_a_daemon_without_clients_has_no_server(mps: Installation) -> None:
    mps.start()
    assert mps.ask("get_server_list") == ""


def test_percentages_are_printed_with_one_decimal(mps: Installation) -> None:
    mps.start()
    assert mps.ask("get_default_active_thread_percentage") == "100.0"
    assert mps.ask("set_default_active_thread_percentage 25") == "25.0"
    assert mps.ask("get_default_active_thread_percentage") == "25.0"


def test_defaults_are_lost_when_the_daemon_quits(mps: Installation) -> None:
    daemon = mps.start()
    mps.ask("set_default_active_thread_percentage 25")
    mps.ask("quit")
    assert daemon.wait(20) == 0
    mps.start()
    assert mps.ask("get_default_active_thread_percentage") == "100.0"


def test_a_client_sees_its_share_rounded_down_to_even_sms(mps: Installation) -> None:
    mps.start()
    whole = mps.client()
    part = mps.client(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25")
    total, seen = whole.report()["sm_count"], part.report()["sm_count"]
    assert isinstance(total, int)
    assert seen == int(total * 0.25) // 2 * 2


def test_clients_are_listed_by_the_pid_of_the_daemons_namespace(mps: Installation) -> None:
    mps.start()
    client = mps.client()
    client.report()
    server = mps.server()
    assert mps.ask(f"get_server_status {server}") == "ACTIVE"
    assert mps.ask(f"get_client_list {server}").split() == [str(client.pid)]
    assert str(client.pid) in mps.ask("get_device_client_list").split()
    client.leave()
    assert mps.ask(f"get_client_list {server}") == ""


def test_ps_has_the_published_columns(mps: Installation) -> None:
    mps.start()
    client = mps.client()
    client.report()
    header, row = mps.ask("ps").splitlines()
    assert header.split() == ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]
    pid, _, server, device, namespace, _ = row.split(maxsplit=5)
    assert (pid, server) == (str(client.pid), mps.server())
    assert device.startswith("GPU-")
    assert namespace.isdigit()


def test_terminating_a_client_prints_zero_and_leaves_its_process_alive(mps: Installation) -> None:
    mps.start()
    client = mps.client()
    client.report()
    server = mps.server()
    assert mps.ask(f"terminate_client {server} {client.pid}") == "0"
    said = client.report()
    assert (said["error"], said["code"]) == ("CUDA_ERROR_MPS_CLIENT_TERMINATED", 810)
    assert mps.ask(f"get_client_list {server}") == ""
    assert client.process.poll() is None
    client.kill()
    assert mps.ask(f"get_server_status {server}") == "ACTIVE"


def test_the_servers_percentage_binds_only_clients_that_come_later(mps: Installation) -> None:
    mps.start()
    early = mps.client()
    whole = early.report()["sm_count"]
    assert mps.ask(f"set_active_thread_percentage {mps.server()} 50") == "50.0"
    late = mps.client(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90").report()["sm_count"]
    assert isinstance(whole, int)
    assert late == whole // 2 // 2 * 2
    assert early.process.poll() is None


def test_the_logs_hold_the_published_lines(mps: Installation) -> None:
    mps.start()
    client = mps.client()
    client.report()
    server = mps.server()
    mps.ask("get_server_list")
    control = (mps.log / "control.log").read_text()
    for line in (
        r"NEW CLIENT 0 from user \d+: Server is not ready, push client to pending list",
        rf"Starting new server {server} for user \d+",
        "NEW UI",
        "Cmd:get_server_list",
        "UI closed",
    ):
        assert re.search(f"^{CONTROL_LINE}{line}$", control, re.M), line
    log = (mps.log / "server.log").read_text()
    assert re.search(r"Created named shared memory region /cuda\.shm\.\w+\.\w+\.\w+$", log, re.M)
    assert re.search(r"Active Threads Percentage set to 100\.0$", log, re.M)
