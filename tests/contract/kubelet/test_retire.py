# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Taking a node out of service leaves nothing of ours on it, and can be taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.kubelet_node import NodeRig
from ullage_node.slices.library import FOLDER


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig() as made:
        yield made


def files_below(*directories: Path) -> list[Path]:
    return [path for directory in directories for path in directory.rglob("*")]


async def test_retire_leaves_nothing_on_a_node_without_slices(rig: NodeRig) -> None:
    await rig.start_agent()
    rig.write_spec(retire=True)
    await rig.until(lambda: rig.condition("Retired").get("status") == "True")
    paths = rig.settings.paths
    assert files_below(paths.cdi_dir, paths.state_dir, paths.run_dir) == []


async def test_retire_leaves_the_mounted_library_alone_and_the_pod_runs_on(rig: NodeRig) -> None:
    agent = await rig.start_agent()
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    rig.write_spec(retire=True)
    await rig.until(lambda: rig.condition("Retired").get("status") == "True")
    paths = rig.settings.paths
    library = paths.state_dir / FOLDER
    assert files_below(library)

    def others() -> list[Path]:
        found = files_below(paths.cdi_dir, paths.state_dir, paths.run_dir)
        return [path for path in found if path != library and library not in path.parents]

    assert others() == []
    assert not agent.plugin.socket.exists()
    assert rig.devices.cleaned == 1
    assert rig.kubelet.offered == 0
    assert rig.condition("Ready")["reason"] == "Retired"
    await rig.phase(pod, "Attached")
    await agent.reconcile()
    await rig.stop_agent()
    assert others() == []


async def test_an_agent_that_starts_on_a_retired_node_stays_out(rig: NodeRig) -> None:
    rig.write_spec(retire=True)
    await rig.launch()
    await rig.until(lambda: rig.condition("Retired").get("status") == "True")
    assert rig.kubelet.offered == 0
    assert rig.agent is not None
    assert rig.agent.unready() == ""


async def test_a_retired_node_takes_in_nothing_new(rig: NodeRig) -> None:
    agent = await rig.start_agent()
    rig.write_spec(retire=True)
    await rig.until(lambda: rig.condition("Retired"))
    late = rig.a_pod()
    part = rig.place(late, write=False)
    rig.write_spec(retire=True, slices=[part.to_wire()])
    await rig.until(lambda: agent.node.spec is not None and agent.node.spec.slices)
    assert agent.table.held == ()


async def test_back_in_service_it_offers_slots_again(rig: NodeRig) -> None:
    await rig.start_agent()
    rig.write_spec(retire=True)
    await rig.until(lambda: rig.condition("Retired"))
    started = rig.devices.started
    rig.write_spec(retire=False)
    await rig.kubelet.allocatable(8)
    await rig.until(lambda: not rig.condition("Retired"))
    assert rig.devices.started == started + 1
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.until(rig.settings.paths.checkpoint.exists)


@pytest.mark.slow
async def test_what_ran_on_through_an_uninstall_is_known_to_the_next_agent(rig: NodeRig) -> None:
    await rig.start_agent()
    pod = await rig.placed_pod(percent=70, memory_mib=12_000)
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    rig.write_spec(retire=True)
    await rig.until(lambda: rig.condition("Retired"))
    await rig.stop_agent()
    rig.unplace(pod)  # nothing is left of it but the last status
    agent = await rig.start_agent()
    await rig.until(lambda: agent.table.slots)
    seen = await rig.phase(pod, "Attached")
    assert (seen.percent, seen.memory_mib, seen.gpu) == (70, 12_000, "gpu-0")
    assert [key.pod_uid for key in agent.table.slots.values()] == [pod.uid]
    newcomer = rig.a_pod()
    rig.place(newcomer, memory_mib=8000)
    assert (await rig.phase(newcomer, "Refused")).reason == "CapacityExceeded"
    rig.remove_pod(pod)
    await rig.until(lambda: rig.slice_of(pod) is None)


async def test_a_slice_of_the_last_status_whose_pod_is_gone_is_not_revived(rig: NodeRig) -> None:
    await rig.start_agent()
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    rig.write_spec(retire=True)
    await rig.until(lambda: rig.condition("Retired"))
    await rig.stop_agent()
    rig.remove_pod(pod)
    rig.unplace(pod)
    agent = await rig.start_agent()
    await rig.until(lambda: rig.slice_of(pod) is None)
    assert agent.table.held == ()
