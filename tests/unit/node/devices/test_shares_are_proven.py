# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A share counts only when it is proven; a client that fell off MPS in silence is found in time.

Every second of virtual time the containers are observed as the agent does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.device_rigs import a_binding
from fakes.mps_inline import inline
from fakes.mps_programs import MEMORY, PIPE, SHARE
from fakes.mps_rig import SMS, MpsRig
from fakes.virtual_time import run_virtual
from ullage.api.devices import Backend
from ullage.api.reasons import Reason
from ullage.api.slices import Proof, SlicePhase
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    ContainerBinding,
    DeviceBackend,
    PrepareRefused,
)
from ullage_node.slices.observer import Observer, PhaseChange

FOUND_SECONDS = 10.0
A, B, _ = MpsRig.gpus
Env = dict[str, str]


def without_pipe(env: Env) -> Env:
    return {name: value for name, value in env.items() if name != PIPE}


TRAPS: Mapping[str, Callable[[Env], Env]] = {
    "no pipe directory": without_pipe,
    "misspelt pipe directory": lambda env: env | {PIPE: "/run/ulage/mps/0/pipe"},
    "pipe of another namespace": lambda env: env | {PIPE: env[PIPE] + "/0000000000"},
    "share dropped": lambda env: {n: v for n, v in env.items() if n != SHARE},
    "pipe and share dropped": lambda env: {},
}


class Bench:
    """A rig with an open backend, and the observer that the agent has."""

    def __init__(self, rig: MpsRig, backend: DeviceBackend) -> None:
        self.rig, self.backend = rig, backend
        self.observer = Observer()
        self.phase = SlicePhase.PREPARED

    async def start(self, *, percent: int = 40, gpu: str = A) -> tuple[ContainerBinding, Env]:
        binding = a_binding(gpu, percent=percent)
        edits = await self.backend.driver.prepare(binding)
        return binding, dict(edits.env)

    async def see(self, *bindings: ContainerBinding) -> Attachment:
        return (await self.backend.driver.observe(bindings))[bindings[0].key]

    async def judged(self, *bindings: ContainerBinding) -> tuple[PhaseChange | None, float]:
        """The first verdict other than attached, and after how many seconds of looking."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() - begun < 60:
            seen = await self.see(*bindings)
            change = self.observer.judge(bindings[0].key, self.phase, seen, loop.time())
            if change is not None and change.phase is not SlicePhase.ATTACHED:
                return change, loop.time() - begun
            if change is not None:
                self.phase = change.phase
            await asyncio.sleep(1)
        return None, 60.0


def bench(
    tmp_path: Path, test: Callable[[Bench], Awaitable[None]], kind: Backend = Backend.MPS2
) -> None:
    async def live() -> None:
        rig = MpsRig(tmp_path, kind)
        backend = inline(rig)
        await backend.probe.start()
        await backend.probe.discover()
        await rig.settle(backend)
        try:
            await test(Bench(rig, backend))
        finally:
            await rig.close()

    run_virtual(live())


both = pytest.mark.parametrize("kind", [Backend.MPS2, Backend.MPS3])


@both
@pytest.mark.parametrize("trap", [t for t in TRAPS if t != "share dropped"])
@pytest.mark.parametrize("reports", [True, False])
def test_every_silent_fallback_is_found_in_time(
    tmp_path: Path, trap: str, kind: Backend, reports: bool
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, TRAPS[trap](env), reports=reports)
        change, seconds = await node.judged(binding)
        assert change is not None
        assert change.why is not None
        assert (change.phase, change.why.reason) == (SlicePhase.FAILED, Reason.UNENFORCED)
        assert seconds <= FOUND_SECONDS

    bench(tmp_path, live, kind)


def test_a_dropped_share_is_seen_by_its_sm_count_and_held_by_the_namespace_of_protocol_3(
    tmp_path: Path,
) -> None:
    async def two(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, TRAPS["share dropped"](env))
        change, seconds = await node.judged(binding)
        assert change is not None
        assert change.why is not None
        assert "132 SMs where 52" in change.why.message
        assert seconds <= FOUND_SECONDS

    async def three(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, TRAPS["share dropped"](env))
        seen = await node.see(binding)
        assert (seen.state, seen.sm_count) == (AttachState.ENFORCED, 52)

    (tmp_path / "2").mkdir()
    (tmp_path / "3").mkdir()
    bench(tmp_path / "2", two, Backend.MPS2)
    bench(tmp_path / "3", three, Backend.MPS3)


@both
def test_one_process_of_many_that_is_no_client_spoils_the_container(
    tmp_path: Path, kind: Backend
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env)
        assert (await node.see(binding)).state is AttachState.ENFORCED
        node.phase = SlicePhase.ATTACHED
        node.rig.start_process(binding, without_pipe(env), reports=False)
        change, seconds = await node.judged(binding)
        assert change is not None
        assert change.phase is SlicePhase.FAILED
        assert seconds <= FOUND_SECONDS

    bench(tmp_path, live, kind)


@both
def test_the_cap_and_its_proof_count_a_context_as_the_slice_says(
    tmp_path: Path, kind: Backend
) -> None:
    async def live(node: Bench) -> None:
        plain = a_binding(B, percent=25)
        said = replace(plain.slices[0], context_overhead_mib=300)
        binding = replace(plain, slices=(said,))
        env = dict((await node.backend.driver.prepare(binding)).env)
        assert env[MEMORY] == "0=812M"
        node.rig.start_process(binding, env, memory_mib=812)
        assert (await node.see(binding)).state is AttachState.ENFORCED
        node.rig.start_process(binding, env, memory_mib=1)
        assert "813 MiB where 812 MiB" in (await node.see(binding)).message

    bench(tmp_path, live, kind)


def test_memory_counts_for_the_pod_over_all_its_processes(tmp_path: Path) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()  # 512 MiB and 512 MiB for its context
        node.rig.start_process(binding, env, memory_mib=1000)
        assert (await node.see(binding)).state is AttachState.ENFORCED
        node.rig.start_process(binding, env, memory_mib=25)
        seen = await node.see(binding)
        assert (seen.state, seen.memory_used_mib) == (AttachState.UNENFORCED, 1025)
        assert "1025 MiB where 1024 MiB" in seen.message

    bench(tmp_path, live)


@both
@pytest.mark.parametrize(
    ("reports", "hidden", "proof"),
    [
        (True, False, Proof.REPORTED),
        (True, True, Proof.REPORTED),
        (False, False, Proof.ENVIRONMENT),
        (False, True, Proof.SERVER_LIST),
    ],
)
def test_the_strongest_proof_at_hand_is_named(
    tmp_path: Path, kind: Backend, reports: bool, hidden: bool, proof: Proof
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env, reports=reports, hidden=hidden)
        seen = await node.see(binding)
        assert (seen.state, seen.proof) == (AttachState.ENFORCED, proof)

    bench(tmp_path, live, kind)


@both
def test_the_proof_is_that_of_the_weakest_process(tmp_path: Path, kind: Backend) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env, reports=False)
        node.rig.start_process(binding, env, reports=False, hidden=True)
        assert (await node.see(binding)).proof is Proof.SERVER_LIST

    bench(tmp_path, live, kind)


WIDER: Mapping[str, Callable[[Env], Env]] = {
    "no share": lambda env: {n: v for n, v in env.items() if n != SHARE},
    "larger share": lambda env: env | {SHARE: "100"},
    "share that is no number": lambda env: env | {SHARE: "40 "},
    "share of no percent": lambda env: env | {SHARE: "0"},
    "no cap": lambda env: {n: v for n, v in env.items() if n != MEMORY},
    "larger cap": lambda env: env | {MEMORY: "0=2G"},
    "larger cap by uuid": lambda env: env | {MEMORY: f"{A}=2G"},
    "cap of another device": lambda env: env | {MEMORY: "1=1024M"},
    "cap with an entry for a device that it cannot see": (
        lambda env: env | {MEMORY: f"{env[MEMORY]},{B}=1024M"}
    ),
}


@pytest.mark.parametrize("wider", WIDER)
@pytest.mark.parametrize("reports", [True, False])
def test_a_client_that_began_with_wider_variables_has_failed(
    tmp_path: Path, wider: str, reports: bool
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        changed = WIDER[wider](env)
        pid = node.rig.start_process(binding, changed | {SHARE: env[SHARE]}, reports=reports)
        node.rig.processes.began[pid] = changed
        change, seconds = await node.judged(binding)
        assert change is not None
        assert change.why is not None
        assert (change.phase, change.why.reason) == (SlicePhase.FAILED, Reason.UNENFORCED)
        assert f"process {pid} began with" in change.why.message
        assert seconds <= FOUND_SECONDS

    bench(tmp_path, live)


@pytest.mark.parametrize(
    "narrower", [{SHARE: "10"}, {SHARE: "39.5"}, {MEMORY: "0=512M"}, {MEMORY: f"{A}=1024M"}]
)
def test_a_client_may_give_itself_less(tmp_path: Path, narrower: Env) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env | narrower, reports=False)
        assert (await node.see(binding)).proof is Proof.ENVIRONMENT

    bench(tmp_path, live)


def test_a_child_that_drops_its_environment_is_found_while_its_parent_behaves(
    tmp_path: Path,
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env, reports=False)
        assert (await node.see(binding)).state is AttachState.ENFORCED
        node.phase = SlicePhase.ATTACHED
        node.rig.start_process(binding, {PIPE: env[PIPE]}, reports=False)
        change, seconds = await node.judged(binding)
        assert change is not None
        assert change.phase is SlicePhase.FAILED
        assert seconds <= FOUND_SECONDS

    bench(tmp_path, live)


async def phases(node: Bench, binding: ContainerBinding, seconds: int) -> set[SlicePhase]:
    """Phases that the container goes through while it is looked at once a second."""
    loop, found = asyncio.get_running_loop(), set[SlicePhase]()
    for _ in range(seconds):
        change = node.observer.judge(binding.key, node.phase, await node.see(binding), loop.time())
        if change is not None:
            node.phase = change.phase
            found.add(change.phase)
        await asyncio.sleep(1)
    return found


@both
def test_a_program_that_forks_is_proven_by_the_environment_its_children_inherit(
    tmp_path: Path, kind: Backend
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env, reports=False)
        for _ in range(60):  # each child works for a second and is followed by another
            child = node.rig.start_process(binding, env, reports=False)
            assert await phases(node, binding, 1) <= {SlicePhase.ATTACHED}
            assert (await node.see(binding)).proof is Proof.ENVIRONMENT
            node.rig.end_process(child)

    bench(tmp_path, live, kind)


@both
def test_a_program_that_ends_at_once_has_never_failed_however_often_it_is_started(
    tmp_path: Path, kind: Backend
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        for restart in range(12):
            node.observer.restart(binding.key)
            node.phase = SlicePhase.PREPARED
            pid = node.rig.start_process(binding, env, reports=False)
            if restart % 2:  # every other one is gone before the first look
                assert await phases(node, binding, 1) == {SlicePhase.ATTACHED}
            node.rig.end_process(pid)
            assert SlicePhase.FAILED not in await phases(node, binding, 12)

    bench(tmp_path, live, kind)


def test_a_process_is_given_the_time_to_become_a_client(tmp_path: Path) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        pid = node.rig.start_process(binding, {}, reports=False)
        node.rig.processes.began[pid] = env
        node.rig.fakes[A].processes[pid] = 64
        assert (await node.see(binding)).state is AttachState.UNVERIFIED
        await asyncio.sleep(2)
        client = node.rig.programs.connect(env, pid)
        assert client is not None
        node.rig.report_sms(binding, client.sm_count)
        assert (await node.see(binding)).state is AttachState.ENFORCED

    bench(tmp_path, live)


def test_an_sm_count_below_the_share_is_no_escape(tmp_path: Path) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env | {SHARE: "10"})
        seen = await node.see(binding)
        assert (seen.state, seen.sm_count) == (AttachState.ENFORCED, 12)

    bench(tmp_path, live)


def test_a_supervisor_that_is_away_proves_nothing_and_takes_no_way_of_sharing(
    tmp_path: Path,
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env)
        assert (await node.see(binding)).state is AttachState.ENFORCED
        node.rig.port.away = "no answer"
        assert (await node.see(binding)).state is AttachState.UNVERIFIED
        devices = await node.backend.probe.discover()
        assert {device.backend for device in devices} == {Backend.MPS2}
        with pytest.raises(PrepareRefused) as refused:
            await node.start(gpu=B)
        assert refused.value.reason is Reason.MPS_NOT_READY
        assert "no answer" in node.backend.probe.problems()[A]
        node.rig.port.away = ""
        assert (await node.see(binding)).state is AttachState.ENFORCED

    bench(tmp_path, live)


@both
def test_the_container_gets_what_makes_it_a_client_with_its_share(
    tmp_path: Path, kind: Backend
) -> None:
    async def live(node: Bench) -> None:
        binding = a_binding(B, percent=25)
        edits = await node.backend.driver.prepare(binding)
        home = f"{node.rig.run_dir}/mps/1"
        assert edits.env[PIPE].startswith(f"{home}/pipe")
        assert edits.env[SHARE] == "25"
        assert edits.env[MEMORY] == "0=1024M", "what it may allocate and its context"
        assert "CUDA_VISIBLE_DEVICES" not in edits.env
        mounts = {mount.container_path: mount.host_path for mount in edits.mounts}
        assert mounts[f"{home}/pipe"] == f"{home}/pipe", "the same name on both sides"
        assert mounts["/dev/shm"] == f"{home}/shm"
        assert "/dev/nvidia1" in {one.path for one in edits.device_nodes}

    bench(tmp_path, live, kind)


@pytest.mark.parametrize(
    ("protected", "probation", "priority"),
    [(True, False, "0"), (False, False, "1"), (True, True, "1"), (False, True, "1")],
)
def test_who_has_no_objective_or_is_on_probation_comes_second(
    tmp_path: Path, protected: bool, probation: bool, priority: str
) -> None:
    async def live(node: Bench) -> None:
        binding = a_binding(A, percent=25)
        part = replace(binding.slices[0], protected=protected, probation=probation)
        edits = await node.backend.driver.prepare(replace(binding, slices=(part,)))
        assert edits.env["CUDA_MPS_CLIENT_PRIORITY"] == priority

    bench(tmp_path, live)


@both
def test_a_whole_device_is_given_past_mps_and_its_server_ends(
    tmp_path: Path, kind: Backend
) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start(percent=100)
        assert PIPE not in env
        report = await node.rig.supervisor.look(None)
        assert A not in report.servers
        node.rig.start_process(binding, env)
        assert (await node.see(binding)).state is AttachState.ENFORCED
        node.rig.end_container(binding)
        await node.backend.driver.release(binding)
        await node.rig.settle(node.backend)
        assert (await node.rig.supervisor.look(None)).servers[A].ready

    bench(tmp_path, live, kind)


def test_a_whole_device_waits_until_the_last_client_has_left(tmp_path: Path) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env)
        await node.see(binding)
        with pytest.raises(PrepareRefused) as refused:
            await node.start(percent=100)
        assert refused.value.reason is Reason.DRAINING
        assert (await node.see(binding)).state is AttachState.ENFORCED, "the tenant goes on"

    bench(tmp_path, live)


def test_a_server_in_fault_refuses_starts_on_its_device_alone(tmp_path: Path) -> None:
    async def live(node: Bench) -> None:
        binding, env = await node.start()
        node.rig.start_process(binding, env)
        node.rig.programs.machine(A).do("fault")
        await node.see(binding)
        await asyncio.sleep(6)
        with pytest.raises(PrepareRefused, match="is Fault") as refused:
            await node.start()
        assert refused.value.reason is Reason.MPS_NOT_READY
        await node.start(gpu=B)
        devices = {device.uuid: device for device in await node.backend.probe.discover()}
        states = {uuid: d.mps.state.value for uuid, d in devices.items() if d.mps}
        assert (states[A], states[B]) == ("Fault", "Active")

    bench(tmp_path, live)


def test_the_whole_gpu_has_132_sms_in_these_tests() -> None:
    assert SMS == 16_896 // 128
