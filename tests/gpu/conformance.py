# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What real MPS and NVML must do, as functions of a rig: the same on a GPU and on the fakes."""

from __future__ import annotations

import os
import signal
import time

from bench.gpu.catalogue import SHARES
from bench.gpu.client import RunningClient
from bench.gpu.preflight import Preflight
from bench.gpu.rig import Rig

ANSWER_S = 30.0


def client(rig: Rig, percent: int, **env: str) -> RunningClient:
    share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
    return RunningClient.start(rig.client, {**rig.mps.env, **share, **env})


def command_0_finds_mps(rig: Rig) -> None:
    found = Preflight(rig).run()
    assert found.mode == "v2", found.reasons
    assert set(found.rounding) == set(SHARES)


def clients_are_proven_and_rounded_down(rig: Rig) -> None:
    rig.mps.start()
    for percent in SHARES:
        with client(rig, percent) as one:
            seen = one.sm_count(ANSWER_S)
            assert one.pid in rig.mps.clients()
            wanted = rig.sm_count * percent / 100
            assert wanted - 8 < seen <= wanted


def a_misspelt_directory_is_seen_as_not_attached(rig: Rig) -> None:
    rig.mps.start()
    with client(rig, 25) as there, client(rig, 25, CUDA_MPS_PIPE_DIRECTORY="/nowhere") as lost:
        there.sm_count(ANSWER_S)
        assert lost.sm_count(ANSWER_S) == rig.sm_count
        assert lost.pid not in rig.mps.clients()


def a_stopped_client_leaves_the_server_well(rig: Rig) -> None:
    rig.mps.start()
    with client(rig, 50) as one:
        one.sm_count(ANSWER_S)
        os.kill(one.pid, signal.SIGSTOP)
        try:
            assert "ACTIVE" in rig.mps.ask(f"get_server_status {rig.mps.server()}")
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert one.pid in rig.mps.clients()


def evictions_cause_no_fault(rig: Rig, count: int) -> None:
    rig.mps.start()
    with client(rig, 25) as stays:
        stays.sm_count(ANSWER_S)
        for _ in range(count):
            with client(rig, 25) as leaves:
                leaves.sm_count(ANSWER_S)
                rig.mps.ask(f"terminate_client {rig.mps.server()} {leaves.pid}")
                assert leaves.pid not in rig.mps.clients()
            assert "FAULT" not in rig.mps.ask(f"get_server_status {rig.mps.server()}")
        assert stays.pid in rig.mps.clients()


def counters_are_fractions_of_the_peak(rig: Rig) -> None:
    assert rig.device.gpm, "this device has no GPM: features come from launch rates"
    gauge = rig.device.begin()
    time.sleep(0.5)
    rig.device.tick(gauge)
    rig.device.end(gauge)
    shares = [value for name, value in gauge.counters.items() if "pcie" not in name]
    assert all(0 <= value <= 101 for value in shares)


def the_device_names_itself(rig: Rig) -> None:
    facts = rig.device.facts
    assert facts.gpu_uuid.startswith("GPU-")
    assert facts.gpu_name
    assert facts.driver
    assert rig.sm_count > 0
    assert rig.device.xids() == []


CHECKS = (
    the_device_names_itself,
    counters_are_fractions_of_the_peak,
    clients_are_proven_and_rounded_down,
    a_misspelt_directory_is_seen_as_not_attached,
    a_stopped_client_leaves_the_server_well,
)
"""What holds on a real GPU and on the fakes alike; the rest needs a figure of its own."""
