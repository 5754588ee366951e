# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hook on a real kernel: what the scheduler makes of it, and what the kernel refuses."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.cgroup_tree import run_hook
from fakes.real_cgroup import RealTree, what_is_missing
from ullage.api.reasons import Reason
from ullage_node.devices.backend import BACKENDS, BackendOptions, Hardware
from ullage_node.devices.cgroups import CgroupVersion, detect_version
from ullage_node.model.devices import (
    AttachState,
    BackendPaths,
    BoundSlice,
    ContainerBinding,
    ContainerKey,
    DeviceBackend,
)

MISSING = what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a writable cgroup tree is here")

WINDOW_SECONDS = 2.0
PERIOD_SECONDS = 0.1


@pytest.fixture
def tree() -> Iterator[RealTree]:
    tree = RealTree()
    try:
        yield tree
    finally:
        tree.close()


@pytest.fixture
async def backend(tree: RealTree, tmp_path: Path) -> DeviceBackend:
    device = {"core": tree.core, "percent": 100, "memoryMiB": 1024, "model": "emulated"}
    (tmp_path / "emulated.json").write_text(json.dumps({"devices": [device]}))
    options = BackendOptions(node_name="here", contexts=8, paths=BackendPaths(state_dir=tmp_path))
    backend = BACKENDS[Hardware.EMULATED](options)
    await backend.probe.start()
    return backend


def a_binding(number: int, percent: int) -> ContainerBinding:
    return ContainerBinding(
        key=ContainerKey(pod_uid=str(uuid.uuid4()), container="main"),
        pod_namespace="default",
        pod_name=f"spinner-{number}",
        slices=(
            BoundSlice(
                slot=f"slot-{number:02d}",
                index=0,
                gpu="emulated-here-0",
                percent=percent,
                memory_mib=64,
            ),
        ),
    )


async def start(
    tree: RealTree, backend: DeviceBackend, binding: ContainerBinding, *, spin: bool = False
) -> str:
    """A container as the runtime makes it: cgroup, first process, hook; answers stderr."""
    path = tree.group(f"pod{binding.key.pod_uid}/container")
    pid = tree.run(path, spin=spin)
    edits = await backend.driver.prepare(binding)
    return "".join(run_hook(hook, pid).stderr for hook in edits.hooks)


@pytest.mark.slow
async def test_cpu_time_stays_within_the_shares(tree: RealTree, backend: DeviceBackend) -> None:
    small, large = a_binding(1, 20), a_binding(2, 40)
    assert await start(tree, backend, small, spin=True) == ""
    assert await start(tree, backend, large, spin=True) == ""
    begun = time.monotonic()
    first = await backend.driver.observe([small, large])
    await asyncio.sleep(WINDOW_SECONDS)
    last = await backend.driver.observe([small, large])
    periods = (time.monotonic() - begun) / PERIOD_SECONDS + 2  # one begun at either end
    used = {
        percent: (last[one.key].cpu_time_ns - first[one.key].cpu_time_ns) / 1e9
        for one, percent in ((small, 20), (large, 40))
    }
    for percent, seconds in used.items():
        print(
            f"quota {percent} %: {100 * seconds / (periods - 2) / PERIOD_SECONDS:.1f} % of a core"
        )
        # The kernel hands a quota to cores in slices of 5 ms, so a little more may be used.
        assert 0 < seconds <= periods * PERIOD_SECONDS * (percent + 10) / 100
    assert all(reading.state is AttachState.ENFORCED for reading in last.values())
    assert all(len(reading.pids) == 1 for reading in last.values())


async def test_it_runs_on_the_named_core_alone(tree: RealTree, backend: DeviceBackend) -> None:
    binding = a_binding(3, 30)
    await start(tree, backend, binding)
    (pid,) = (await backend.driver.observe([binding]))[binding.key].pids
    assert os.sched_getaffinity(pid) == {tree.core}


async def test_a_pod_limit_below_the_share_is_kept_and_told(
    tree: RealTree, backend: DeviceBackend
) -> None:
    binding = a_binding(4, 40)
    pod = tree.group(f"pod{binding.key.pod_uid}")
    if tree.version is CgroupVersion.V1:
        tree.write("cpu", pod, "cpu.cfs_quota_us", "15000")
    else:
        tree.write("", pod, "cpu.max", "15000 100000")
    assert await start(tree, backend, binding) == ""
    reading = (await backend.driver.observe([binding]))[binding.key]
    assert reading.state is AttachState.ENFORCED
    assert reading.reason is Reason.CPU_LIMIT_BELOW_SHARE
    assert "150m" in reading.message
    assert "400m" in reading.message


@pytest.mark.parametrize("period_us", [50_000, 200_000])
async def test_a_limit_in_another_period_is_carried_over(
    tree: RealTree, backend: DeviceBackend, period_us: int
) -> None:
    binding = a_binding(5, 40)
    container = tree.group(f"pod{binding.key.pod_uid}/container")
    pod, quota = container.rpartition("/")[0], str(period_us // 4)
    if tree.version is CgroupVersion.V1:
        for path in (pod, container):
            tree.write("cpu", path, "cpu.cfs_period_us", str(period_us))
            tree.write("cpu", path, "cpu.cfs_quota_us", quota)
    else:
        tree.write("", container, "cpu.max", f"{quota} {period_us}")
    assert await start(tree, backend, binding) == ""
    reading = (await backend.driver.observe([binding]))[binding.key]
    assert "250m" in reading.message


async def test_a_core_that_the_kernel_refuses_stops_the_container(
    tree: RealTree, backend: DeviceBackend
) -> None:
    binding = a_binding(6, 40)
    path = tree.group(f"pod{binding.key.pod_uid}/container")
    pid = tree.run(path)
    (hook,) = (await backend.driver.prepare(binding)).hooks
    absent = str(tree.core + 64)
    done = run_hook(replace(hook, args=(*hook.args[:3], absent)), pid)
    assert done.returncode != 0
    assert f"the kernel refused {absent}" in done.stderr
    assert (await backend.driver.observe([binding]))[binding.key].state is AttachState.ABSENT


async def test_a_limit_lifted_behind_our_back_is_seen(
    tree: RealTree, backend: DeviceBackend
) -> None:
    binding = a_binding(7, 40)
    await start(tree, backend, binding)
    path = f"/{tree.name}/pod{binding.key.pod_uid}/container"
    if detect_version(Path("/sys/fs/cgroup")) is CgroupVersion.V1:
        tree.write("cpu", path, "cpu.cfs_quota_us", "-1")
    else:
        tree.write("", path, "cpu.max", "max 100000")
    reading = (await backend.driver.observe([binding]))[binding.key]
    assert reading.state is AttachState.UNENFORCED
    assert reading.message == "no CPU quota per 100000 us stands where 40000 us was decided"
