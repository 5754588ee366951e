# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The traps: where MPS fails in silence, and where it blocks for ever."""

from __future__ import annotations

import pytest

from fakes.mps import DEFAULT_UUID as UUID
from fakes.mps import ClientState, Factory, Gpu, Rig, Script


def test_a_missing_pipe_directory_means_the_whole_gpu_without_a_word(scripted: Factory) -> None:
    mps = scripted()
    mps.start()
    said = mps.client(
        CUDA_MPS_PIPE_DIRECTORY=f"{mps.root}/typo", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10"
    ).report()
    assert (said["event"], said["sm_count"], said["memory_cap_mib"]) == ("unlimited", 132, None)
    assert mps.ask("get_server_list") == ""


def test_a_stale_socket_means_the_whole_gpu_too(scripted: Factory) -> None:
    mps = scripted()
    daemon = mps.start()
    daemon.kill()
    daemon.wait(20)
    assert mps.client().report()["event"] == "unlimited"


def test_a_socket_path_beyond_sun_path_fails_without_text_or_log(scripted: Factory) -> None:
    mps = scripted()
    long = f"{mps.root}/{'x' * 108}"
    mps.environ["CUDA_MPS_PIPE_DIRECTORY"] = long
    assert mps.call("-d") == (0, "")
    assert mps.start(ready=False).wait(20) == 1
    assert not (mps.log / "control.log").exists()
    assert mps.call(typed="ps\n") == (1, "Cannot find MPS control daemon process")
    assert mps.client().report()["event"] == "unlimited"


def test_a_wrong_uid_first_in_line_wedges_everyone_behind_it() -> None:
    rig = Rig(Script(wedge_uid=1000))
    fine = rig.client(uid=1000)
    rig.machine.disconnect(fine, clean=True)
    wrong, later = rig.client(uid=0), rig.client(uid=1000)
    rig.pass_time(3600)
    assert fine.inbox[0]["event"] == "attached"
    assert [wrong.state, later.state] == [ClientState.WAITING, ClientState.WAITING]


def test_an_entry_for_an_invisible_gpu_drops_every_cap() -> None:
    rig = Rig()
    rig.run("set_default_device_pinned_mem_limit 0 1G")
    assert rig.client().memory_cap_mib == 1024
    escaped = rig.client(memory_limit=f"{UUID}=512M,GPU-ffffffff=1G")
    assert escaped.memory_cap_mib is None
    assert escaped.inbox[-1]["allocatable_mib"] == 81559


def test_in_exclusive_mode_a_missing_directory_is_an_error(scripted: Factory) -> None:
    mps = scripted(gpus=[{"uuid": UUID, "exclusive": True}])
    said = mps.client(CUDA_MPS_PIPE_DIRECTORY=f"{mps.root}/typo").report()
    assert said["text"] == "all CUDA-capable devices are busy or unavailable"
    daemon = mps.start()
    daemon.kill()
    daemon.wait(20)
    said = mps.client().report()
    assert said["code"] == 805
    assert said["text"] == (
        "MPS client failed to connect to the MPS control daemon or the MPS server"
    )


@pytest.mark.parametrize(("exclusive", "code"), [(True, 46), (False, 805)])
def test_without_the_daemons_shared_memory_a_client_fails(
    scripted: Factory, exclusive: bool, code: int
) -> None:
    mps = scripted(gpus=[{"uuid": UUID, "exclusive": exclusive}])
    ours, other = mps.root / "shm", mps.root / "othershm"
    ours.mkdir()
    other.mkdir()
    mps.daemon_environ["FAKE_MPS_SHM_DIRECTORY"] = str(ours)
    mps.start()
    assert mps.client(FAKE_MPS_SHM_DIRECTORY=str(ours)).report()["event"] == "attached"
    assert mps.client(FAKE_MPS_SHM_DIRECTORY=str(other)).report()["code"] == code


def test_a_daemon_of_a_user_takes_no_other_user() -> None:
    from fakes.mps import Options

    rig = Rig(options=Options(uid=1000))
    assert rig.client(uid=1000).state is ClientState.ATTACHED
    assert rig.client(uid=2000).state is ClientState.REFUSED
    assert rig.logs.control_lines[-1].endswith("User did not send valid credentials")


def test_a_gpu_of_another_size_rounds_its_own_way() -> None:
    rig = Rig(Script(gpus=(Gpu(sm_count=144, sm_step=8),)))
    assert rig.client(percent=40).sm_count == 56
