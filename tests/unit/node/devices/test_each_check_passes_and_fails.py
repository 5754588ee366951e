# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Each check of a node with GPUs on its passing and its failing side, from one healthy hour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from ullage.api.checks import CheckState, NodeCheck
from ullage.api.devices import Backend, MpsState
from ullage.api.slices import Proof
from ullage_node.devices.nvidia.checks import FirstHour, checks_of
from ullage_node.devices.nvidia.choice import Driver, SharingChoice
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.model.devices import Attachment, AttachState
from ullage_node.mps.records import Installed, MpsServer

SHARED: Final = NvidiaDevice(
    uuid="GPU-1", product_name="NVIDIA H100", memory_mib=81_559, minor=0, mig=False
)
PART: Final = replace(SHARED, uuid="MIG-1", parent="GPU-2", instance=(1, 0))
SERVER: Final = MpsServer(
    uuid="GPU-1",
    protocol=2,
    state=MpsState.ACTIVE,
    multi_user=True,
    memory_key="GPU-1",
    log="control.log",
)
HELD: Final = Attachment(state=AttachState.ENFORCED, proof=Proof.REPORTED)
ESCAPED: Final = Attachment(state=AttachState.UNENFORCED, message="past the MPS server")
HEALTHY: Final = FirstHour(
    driver=Driver(version="580.65.06", cuda=13_000),
    devices={"GPU-1": SHARED, "MIG-1": PART},
    choices={
        "GPU-1": SharingChoice(backend=Backend.MPS2),
        "MIG-1": SharingChoice(backend=Backend.EXCLUSIVE),
    },
    mps=True,
    installed=Installed(version="580.65.06", protocols=(2,), multi_user=True),
    servers={"GPU-1": SERVER},
    unseen="",
    shares=(HELD,),
    wholes=(HELD,),
    toolkit=True,
)
NEVER_OK: Final = frozenset({"MixedUsers"})
"""Nothing that one agent sees shows it."""
NEVER_FAILS: Final = frozenset({"MemoryLimit"})
"""A daemon that repeats no limit may still hold it."""
HARMS: Final[dict[str, dict[str, Any]]] = {
    "Driver": {"driver": Driver(version="470.256.02", cuda=11_040)},
    "MPSProgram": {"installed": Installed(problem="nvidia-cuda-mps-control is not there")},
    "HostProcesses": {"unseen": "counts other processes than the host"},
    "WholeGPU": {"wholes": (ESCAPED,)},
    "MPSServers": {"servers": {"GPU-1": replace(SERVER, state=MpsState.FAULT, why="a fault")}},
    "ShareProof": {"shares": (HELD, ESCAPED)},
    "DaemonLog": {"servers": {"GPU-1": replace(SERVER, log="")}},
    "MixedUsers": {"servers": {"GPU-1": replace(SERVER, multi_user=False)}},
    "MIG": {"devices": {"GPU-1": SHARED, "GPU-2": replace(SHARED, uuid="GPU-2", mig=True)}},
    "ContainerToolkit": {"toolkit": False, "toolkit_problem": "nvidia.yaml cannot be read"},
}


def by_name(hour: FirstHour) -> dict[str, NodeCheck]:
    return {check.name: check for check in checks_of(hour)}


def test_in_a_healthy_hour_each_check_holds() -> None:
    found = by_name(HEALTHY)
    assert found.keys() == HARMS.keys() | NEVER_FAILS
    assert {name for name, check in found.items() if check.state is not CheckState.OK} == NEVER_OK


@pytest.mark.parametrize("name", HARMS)
def test_a_check_that_fails_has_the_line_that_mends_it(name: str) -> None:
    check = by_name(replace(HEALTHY, **HARMS[name]))[name]
    assert check.state is CheckState.FAILED
    assert any(line in check.remedy for line in ("kubectl ", "nvidia-ctk ", "nvidia-smi ")), check
