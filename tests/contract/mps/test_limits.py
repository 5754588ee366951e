# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits: who is bound by what, and when."""

from __future__ import annotations

import pytest

from fakes.mps import DEFAULT_UUID as UUID
from fakes.mps import Gpu, Options, Rig, Script


@pytest.mark.parametrize(
    ("sms", "percent", "seen"),
    [
        (188, 50, 94),
        (188, 25, 46),
        (188, 10, 18),
        (132, 25, 32),
        (132, 50, 66),
        (132, 75, 98),
        (132, 100, 132),
        (132, 1, 2),
    ],
)
def test_sm_counts_are_rounded_down_to_even(sms: int, percent: float, seen: int) -> None:
    rig = Rig(Script(gpus=(Gpu(sm_count=sms),)))
    assert rig.client(percent=percent).sm_count == seen


def test_a_default_binds_the_next_server_only() -> None:
    rig = Rig()
    first = rig.client()
    rig.run("set_default_active_thread_percentage 50")
    assert rig.client().sm_count == 132
    assert rig.run(f"get_active_thread_percentage {rig.server.pid}") == "100.0"
    rig.machine.stop_server(rig.server)
    assert rig.client().sm_count == 66
    assert first.sm_count == 132


@pytest.mark.parametrize(("server", "env", "seen"), [(50, 25, 32), (25, 50, 32), (25, None, 32)])
def test_the_smaller_of_server_and_environment_counts(
    server: int, env: float | None, seen: int
) -> None:
    rig = Rig()
    rig.client()
    rig.run(f"set_active_thread_percentage {rig.server.pid} {server}")
    assert rig.client(percent=env).sm_count == seen


def test_a_memory_default_binds_the_next_server_and_the_last_name_of_a_device_wins() -> None:
    rig = Rig()
    rig.run("set_default_device_pinned_mem_limit 0 10G")
    rig.run(f"set_default_device_pinned_mem_limit {UUID} 5G")
    rig.run("set_default_device_pinned_mem_limit GPU-ffffffff 1G")
    assert rig.run("get_default_device_pinned_mem_limit 0") == "10240M"
    client = rig.client()
    assert client.memory_cap_mib == 5120
    assert rig.run(f"get_device_pinned_mem_limit {rig.server.pid} 0") == "5120M"
    assert any(
        line.endswith("limit for device 0 set to 0x140000000 bytes")
        for line in rig.logs.server_lines
    )


def test_a_servers_memory_limit_may_exceed_the_default_and_binds_later_clients() -> None:
    rig = Rig()
    rig.run("set_default_device_pinned_mem_limit 0 1G")
    early = rig.client()
    rig.run(f"set_device_pinned_mem_limit {rig.server.pid} {UUID} 2G")
    assert (early.memory_cap_mib, rig.client().memory_cap_mib) == (1024, 2048)
    assert rig.client(memory_limit="0=512M").memory_cap_mib == 512
    assert rig.client(memory_limit="0=8G").memory_cap_mib == 2048


@pytest.mark.parametrize(("cap", "allocatable"), [("10G", 9728), ("5G", 4864)])
def test_cuda_keeps_a_twentieth_of_a_cap(cap: str, allocatable: int) -> None:
    rig = Rig()
    said = rig.client(memory_limit=f"{UUID}={cap}").inbox[-1]
    assert said["allocatable_mib"] == allocatable
    assert said["memory_total_mib"] == 81559


def test_priority_is_a_default_for_future_clients() -> None:
    rig = Rig()
    first = rig.client().inbox[-1]["priority"]
    assert rig.run("set_default_client_priority 1") == "1"
    assert (first, rig.client().inbox[-1]["priority"]) == (0, 1)
    assert rig.client(priority=0).inbox[-1]["priority"] == 0


@pytest.mark.parametrize(
    "line",
    [
        "set_default_active_thread_percentage 0",
        "set_default_active_thread_percentage 101",
        "set_default_active_thread_percentage much",
        "set_default_device_pinned_mem_limit 0 10",
        "set_default_client_priority 2",
    ],
)
def test_a_wrong_value_changes_nothing(line: str) -> None:
    rig = Rig()
    assert " must be " in rig.run(line) or " is 0 " in rig.run(line)
    assert rig.run("get_default_active_thread_percentage") == "100.0"
    assert rig.client().memory_cap_mib is None


def test_static_partitions_replace_percentages() -> None:
    rig = Rig(Script(cuda_version="13.1"), Options(static=True))
    identifier = rig.run(f"sm_partition add {UUID} 7")
    assert identifier.startswith(f"{UUID}/")
    assert rig.run(f"sm_partition add {UUID} 10").startswith(
        "Failed to fulfill the requested SM partition of 10 chunks, error "
        "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
    )
    assert rig.client().inbox[-1]["error"] == "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
    client = rig.client(partition=identifier, percent=10)
    assert client.sm_count == 56
    assert "active clients" in rig.run(f"sm_partition add {UUID} 1")
    heads, units, whole, part = rig.run("lspart").splitlines()
    assert heads.split() == ["GPU", "Partition", "free", "used", "free", "used", "clients"]
    assert units.split() == ["chunk", "chunk", "SM", "SM"]
    assert whole.split() == ["GPU-cb1213a3", "-", "9", "7", "76", "56", "-"]
    assert part.split()[2:] == ["-", "7", "-", "56", "Yes"]
    rig.machine.disconnect(client, clean=True)
    assert rig.run(f"sm_partition rm {UUID} {identifier.split('/', 1)[1]}") == ""
    assert len(rig.run("lspart").splitlines()) == 3


def test_device_query_names_the_devices() -> None:
    head, row = Rig().run("device_query --csv").splitlines()
    assert head.split(",")[:2] == ["ORDINAL", "UUID"]
    assert row.split(",")[:2] == ["0", UUID]
