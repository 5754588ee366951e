# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The way of sharing and the context limit come from device, driver and binary, never a setting."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.mps import Script
from fakes.mps_programs import FakeProcesses, FakePrograms
from ullage.api.devices import Backend, GPUMode
from ullage_node.devices.nvidia.choice import Driver, choose, modes_of
from ullage_node.devices.nvidia.proof import sms_of
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.mps.probe import Processes, look_around
from ullage_node.mps.records import Installed, Stranger

H100 = NvidiaDevice(
    uuid="GPU-1",
    product_name="NVIDIA H100",
    memory_mib=81_559,
    minor=0,
    mig=False,
    capability=(9, 0),
    sm_count=132,
)
DRIVER = Driver(version="580.65.06", cuda=13_000)
INSTALLED = Installed(version="13000", protocols=(2,), multi_user=True)


@pytest.mark.parametrize(
    ("driver", "cuda", "protocols", "backend", "contexts"),
    [
        ("535.104.05", 12_020, (2,), Backend.MPS2, 44),
        ("580.65.06", 13_000, (2,), Backend.MPS2, 44),
        ("595.10.01", 13_010, (2, 3), Backend.MPS2, 56),
        ("615.71.05", 13_040, (2, 3), Backend.MPS3, 56),
        ("615.71.05", 13_040, (2,), Backend.MPS2, 56),
    ],
)
def test_protocol_and_contexts_follow_driver_and_binary(
    driver: str, cuda: int, protocols: tuple[int, ...], backend: Backend, contexts: int
) -> None:
    installed = replace(INSTALLED, protocols=protocols)
    choice = choose(H100, Driver(version=driver, cuda=cuda), installed, "")
    assert (choice.backend, choice.contexts, choice.problem) == (backend, contexts, "")
    assert GPUMode.FRACTIONAL in modes_of(H100, choice)


@pytest.mark.parametrize(
    ("device", "driver", "installed", "words"),
    [
        ({}, DRIVER, None, "not reached"),
        ({}, DRIVER, Installed(problem="nvidia-cuda-mps-control: No such file"), "No such file"),
        ({}, Driver(version="470.1", cuda=11_040), INSTALLED, "470.1 is older than 535"),
        ({}, Driver(version="devel", cuda=13_000), INSTALLED, "is older than 535"),
        ({"sm_count": 0}, DRIVER, INSTALLED, "how many SMs"),
        ({"capability": (0, 0)}, DRIVER, INSTALLED, "not known"),
        ({"mig": True}, DRIVER, INSTALLED, "MIG mode"),
        ({"prohibited": True}, DRIVER, INSTALLED, "PROHIBITED"),
        ({}, DRIVER, replace(INSTALLED, strangers=(Stranger(pid=77),)), "process 77"),
    ],
)
def test_whatever_speaks_against_mps_leaves_whole_devices_and_a_reason(
    device: dict[str, object], driver: Driver, installed: Installed | None, words: str
) -> None:
    gpu = replace(H100, **device)  # type: ignore[arg-type]
    choice = choose(gpu, driver, installed, "the supervisor is not reached")
    assert choice.backend is Backend.EXCLUSIVE
    assert words in choice.problem
    assert GPUMode.FRACTIONAL not in modes_of(gpu, choice)


def test_a_stranger_on_another_device_is_none_of_this_ones() -> None:
    installed = replace(INSTALLED, strangers=(Stranger(pid=77, gpus=("GPU-9",)),))
    assert choose(H100, DRIVER, installed, "").backend is Backend.MPS2


def test_before_volta_tenants_take_turns() -> None:
    old = replace(H100, capability=(6, 0))
    choice = choose(old, DRIVER, INSTALLED, "")
    assert (choice.backend, choice.contexts) == (Backend.TIME_SLICE, 12)
    assert "equal turns" in choice.problem
    assert choose(replace(old, one_process=True), DRIVER, INSTALLED, "").backend is (
        Backend.EXCLUSIVE
    )


@pytest.mark.parametrize(
    ("total", "percent", "sms"),
    [(188, 50, 94), (188, 25, 46), (188, 10, 18), (132, 25, 32), (132, 75, 98), (132, 1, 2)],
)
def test_shares_round_down_to_even_sms(total: int, percent: int, sms: int) -> None:
    assert sms_of(total, percent) == sms


class TestLookingAround:
    async def test_options_follow_the_drivers_version_and_the_program_is_not_asked(
        self, tmp_path: Path
    ) -> None:
        programs = FakePrograms(Script(protocols=(2, 3)))
        found = {
            driver: await look_around(programs, FakeProcesses(), tmp_path, driver)
            for driver in ("470.82.01", "535.104.05", "615.71.05")
        }
        assert [(one.protocols, one.multi_user) for one in found.values()] == [
            ((2,), False),
            ((2,), True),
            ((2, 3), True),
        ]
        assert all(one.version == driver and not one.problem for driver, one in found.items())
        asked = {word for call in programs.calls for word in call.words}
        assert not {"-v", "--help"} & asked

    @pytest.mark.parametrize("driver", ["", "devel", "5", "x" * 64])
    async def test_without_a_version_nothing_is_believed(self, tmp_path: Path, driver: str) -> None:
        found = await look_around(FakePrograms(), FakeProcesses(), tmp_path, driver)
        assert "is not known" in found.problem
        assert found.protocols == ()

    async def test_without_the_program_there_is_no_mps(self, tmp_path: Path) -> None:
        programs = FakePrograms()
        programs.missing = "gone"
        found = await look_around(programs, FakeProcesses(), tmp_path, DRIVER.version)
        assert "runtime class nvidia brings it" in found.problem

    async def test_protocol_three_is_believed_when_a_daemon_answers_in_it(
        self, tmp_path: Path
    ) -> None:
        programs = FakePrograms(Script(protocols=(2,)))
        found = await look_around(programs, FakeProcesses(), tmp_path, "615.71.05")
        assert (found.problem, found.protocols) == ("", (2,))
        assert os.listdir(tmp_path) == []
        assert programs.living == []

    def test_a_strangers_daemon_is_found_among_the_processes(self, tmp_path: Path) -> None:
        def process(pid: int, words: bytes, env: bytes) -> None:
            place = tmp_path / str(pid)
            place.mkdir()
            (place / "comm").write_text("nvidia-cuda-mps\n")
            (place / "cmdline").write_bytes(words)
            (place / "environ").write_bytes(env)

        root = Path("/run/ullage/mps")
        daemon = b"/usr/bin/nvidia-cuda-mps-control\0-d\0"
        process(10, daemon, b"A=b\0CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\0")
        process(11, daemon, b"")
        process(
            12, b"nvidia-cuda-mps-control\0-f\0", b"CUDA_MPS_PIPE_DIRECTORY=/run/ullage/mps/0/pipe"
        )
        process(13, b"nvidia-cuda-mps-server\0", b"")
        process(14, b"nvidia-cuda-mps-control\0", b"")
        assert Processes(tmp_path).strangers(root) == (
            Stranger(pid=10, gpus=("GPU-1", "GPU-2")),
            Stranger(pid=11),
        )
