# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Starting, asking and stopping: options, exit statuses, help, both protocols' front ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from fakes.mps import BIN, Factory


def test_the_version_is_that_of_the_script(scripted: Factory) -> None:
    assert scripted(cuda_version="13.1").call("-v") == (0, "Binary version: 13010")


def test_the_executables_stand_first_on_path(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    path = f"{BIN}{os.pathsep}{mps.environ['PATH']}"
    shell = "fake_cuda_client --once && echo get_server_list | nvidia-cuda-mps-control"
    done = subprocess.run(
        ["sh", "-c", shell], env=mps.environ | {"PATH": path}, capture_output=True, check=True
    )
    attached, server = done.stdout.decode().splitlines()
    assert json.loads(attached)["server"] == int(server)


def test_help_names_only_what_this_binary_can_do(scripted: Factory) -> None:
    mps = scripted()
    status, old = mps.call("--help")
    assert status == 0
    assert "terminate_client" in old
    assert "-S" not in old
    assert "-p <version>" not in old
    mps.write_script({"cuda_version": "13.4", "protocols": [2, 3]})
    new = mps.call("-h")[1]
    assert "-S" in new
    assert "-p <version>" in new


def test_an_old_binary_refuses_the_options_of_a_new_one(scripted: Factory) -> None:
    mps = scripted()
    assert mps.call("-p", "3", "server", "list")[0] == 1
    assert mps.call("-f", "-S")[0] == 1
    assert mps.call("-f", "-m")[0] == 1


def test_minus_d_returns_once_the_daemon_answers(scripted: Factory) -> None:
    mps = scripted()
    assert mps.call("-d") == (0, "")
    pid = int((mps.pipe / "nvidia-cuda-mps-control.pid").read_text())
    assert mps.ask("get_server_list") == ""
    assert mps.ask("quit") == ""
    assert not (mps.pipe / "control").exists()
    assert pid > 1


def test_several_lines_are_answered_in_one_session(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    lines = ("set_default_active_thread_percentage 40", "nonsense", "get_default_client_priority")
    assert mps.ask(*lines).splitlines() == ["40.0", "Unknown command: nonsense", "0"]


def test_one_command_may_stand_on_the_command_line(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    assert mps.call("get_default_active_thread_percentage") == (0, "100.0")


def test_sigterm_ends_daemon_and_servers(scripted: Factory) -> None:
    mps = scripted()
    daemon = mps.start()
    client = mps.client()
    client.report()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(20) == 0
    assert client.report()["error"] == "CUDA_ERROR_MPS_RPC_FAILURE"


def test_a_killed_daemon_leaves_a_stale_socket_that_the_next_one_reclaims(
    scripted: Factory,
) -> None:
    mps = scripted()
    daemon = mps.start()
    client = mps.client()
    client.report()
    mps.ask("set_default_active_thread_percentage 10")
    daemon.kill()
    daemon.wait(20)
    assert client.report()["error"] == "CUDA_ERROR_MPS_RPC_FAILURE"
    assert (mps.pipe / "control").exists()
    assert mps.call(typed="ps\n") == (1, "Cannot find MPS control daemon process")
    mps.start()
    assert mps.ask("get_server_list") == ""
    assert mps.ask("get_default_active_thread_percentage") == "100.0"


def test_the_modules_of_protocol_3_come_as_arguments(scripted: Factory) -> None:
    mps = scripted(protocols=[2, 3])
    daemon = mps.start("-p", "3", "-m")
    assert mps.call("-p", "3", "server", "create", "training") == (0, "")
    status, row = mps.call("server", "list", "--format=csv,noheader")
    name, uid, pid, state, pipe, allowed, contexts = row.split(",")
    assert (status, name, uid, state) == (0, "training", "0", "Ready")
    assert (pipe, allowed, contexts) == (f"{mps.pipe}/training", "all", "-")
    assert pid.isdigit()
    assert mps.call("-q") == (0, "")
    assert daemon.wait(20) == 0


def test_a_configuration_file_is_applied_at_the_start(scripted: Factory) -> None:
    mps = scripted(protocols=[2, 3])
    config = mps.root / "c.toml"
    config.write_text(
        '[servers.training]\nactive_thread_percentage = "10"\n'
        '[servers.training.namespaces.a]\npinned_memory_limit = "5G"\n'
    )
    mps.start("-p", "3", "-a", str(config))
    assert mps.call("namespace", "get", "a", "training", "pinned-memory-limit") == (0, "5G")
    assert (
        mps.call("namespace", "get", "default", "training", "active-thread-percentage")[1] == "10"
    )


def test_a_configuration_file_with_an_unknown_key_stops_the_start(scripted: Factory) -> None:
    mps = scripted(protocols=[2, 3])
    config = mps.root / "c.toml"
    config.write_text("[servers.training]\nthreads = 10\n")
    assert mps.start("-p", "3", "-a", str(config), ready=False).wait(20) == 1
