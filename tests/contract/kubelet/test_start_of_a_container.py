# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From kubelet's PreStartContainer to what the container gets, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.kubelet import StartRefused
from fakes.kubelet_backend import FakeDevices, a_device
from fakes.kubelet_node import CONTAINER, NodeRig
from fakes.kubelet_runtime import UnresolvableDevice
from ullage.api.reasons import Reason
from ullage.api.steps import STEP_RECORD_BYTES
from ullage.ports import POD
from ullage_node.model.devices import PrepareRefused


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig(FakeDevices(devices=[a_device(0), a_device(1)])) as made:
        await made.start_agent()
        yield made


async def test_a_container_gets_its_own_slice(rig: NodeRig) -> None:
    pod = await rig.placed_pod("gpu-1", 40)
    made = await rig.start(pod)
    assert made.env["FAKE_GPUS"] == "gpu-1"
    assert made.env["FAKE_SHARES"] == "40"
    assert made.env["ULLAGE_SLICE"] == f"{pod.uid}_{CONTAINER}"
    assert made.env["ULLAGE_STEPS"] == "/run/ullage/steps/record"
    seen = await rig.phase(pod, "Attached")
    assert (seen.gpu, seen.percent, seen.epoch) == ("gpu-1", 40, rig.epoch)


async def test_the_step_record_is_fresh_and_writable_by_anyone(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    made = await rig.start(pod)
    record = rig.root / "run/steps" / f"{pod.uid}_{CONTAINER}" / "record"
    assert made.mounts["/run/ullage/steps/record"] == str(record.resolve())
    assert record.stat().st_mode & 0o777 == 0o666
    record.write_bytes(b"x" * STEP_RECORD_BYTES)
    rig.end_process(pod)
    await rig.start(pod)
    assert record.read_bytes() == bytes(STEP_RECORD_BYTES)


async def test_allocate_alone_gives_nothing(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    with pytest.raises(UnresolvableDevice):
        rig.runtime.create(rig.kubelet.cdi_names[pod.uid, CONTAINER])


async def test_a_pod_without_a_decision_waits_and_starts_once_there_is_one(rig: NodeRig) -> None:
    pod = rig.a_pod()
    rig.show_pod(pod)
    await rig.kubelet.admit(pod)
    with pytest.raises(StartRefused, match=r"^PlacementMissing: .*; retrying$"):
        await rig.start(pod)
    rig.place(pod)
    await rig.phase(pod, "Reserved")
    assert (await rig.start(pod)).env["FAKE_SHARES"] == "25"


async def test_a_refusal_is_one_short_stable_line_and_one_event(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    rig.devices.refuse = PrepareRefused(
        Reason.MPS_NOT_READY, "the server\nis starting " + "x" * 300
    )
    texts = set()
    for _ in range(3):
        with pytest.raises(StartRefused) as caught:
            await rig.start(pod)
        texts.add(str(caught.value))
    (text,) = texts
    assert text.startswith("MPSNotReady: the server is starting")
    assert len(text) <= 200
    await rig.until(lambda: rig.events("SliceRefused"))
    (event,) = rig.events("SliceRefused")
    assert (event["involvedObject"]["uid"], event["message"]) == (pod.uid, text)
    await rig.until(lambda: (seen := rig.slice_of(pod)) and seen.reason == "MPSNotReady")
    await rig.phase(pod, "Reserved")


async def test_a_lasting_refusal_gives_the_room_back(rig: NodeRig) -> None:
    pod = rig.a_pod(slots=2)
    rig.place(pod, memory_mib=16_384)
    await rig.phase(pod, "Reserved")
    rig.show_pod(pod)
    await rig.kubelet.admit(pod)
    with pytest.raises(StartRefused, match=r"SlotCount: .* 2 slots for 1 slices"):
        await rig.start(pod)
    await rig.phase(pod, "Refused")
    other = await rig.placed_pod(memory_mib=16_384)
    assert (await rig.start(other)).env["FAKE_GPUS"] == "gpu-0"


async def test_whole_devices_meet_slots_in_order(rig: NodeRig) -> None:
    pod = rig.a_pod(slots=2)
    rig.place(pod, "gpu-0", 100, memory_mib=16_384, write=False)
    rig.place(pod, "gpu-1", 100, memory_mib=16_384, index=1)
    await rig.phase(pod, "Reserved", 1)
    rig.show_pod(pod)
    await rig.kubelet.admit(pod)
    made = await rig.start(pod)
    assert made.env["FAKE_GPUS"] == "gpu-0,gpu-1"
    await rig.phase(pod, "Attached", 0)
    await rig.phase(pod, "Attached", 1)


async def test_a_recreated_pod_never_gets_the_slice_of_its_namesake(rig: NodeRig) -> None:
    old = await rig.placed_pod(percent=70, name="trainer-0")
    await rig.start(old)
    rig.api.faults.freeze_watches()  # the agent's watch lags behind kubelet
    rig.remove_pod(old)
    new = rig.a_pod("trainer-0")
    rig.show_pod(new)
    await rig.kubelet.admit(new)
    with pytest.raises(StartRefused, match="PlacementMissing"):
        await rig.start(new)
    rig.api.faults.thaw_watches()
    rig.unplace(old)
    rig.place(new, percent=30)
    await rig.phase(new, "Reserved")
    made = await rig.start(new)
    assert (made.env["FAKE_SHARES"], made.env["ULLAGE_SLICE"]) == ("30", f"{new.uid}_{CONTAINER}")


async def test_without_an_answer_about_the_name_a_namesake_in_play_is_refused(
    rig: NodeRig,
) -> None:
    old = await rig.placed_pod(name="trainer-0")
    await rig.start(old)
    new = rig.a_pod("trainer-0")
    rig.place(new)
    await rig.phase(new, "Reserved")
    rig.api.faults.freeze_watches()
    rig.remove_pod(old)
    rig.show_pod(new)
    await rig.kubelet.admit(new)
    rig.api.fail(503, verb="get", plural="pods", times=1)
    with pytest.raises(StartRefused, match="PodUnknown: 2 pods called team/trainer-0"):
        await rig.start(new)
    rig.api.faults.thaw_watches()
    assert (await rig.start(new)).env["ULLAGE_SLICE"] == f"{new.uid}_{CONTAINER}"


async def test_reserved_pods_start_while_the_api_server_is_away(rig: NodeRig) -> None:
    pod = await rig.placed_pod(percent=35)
    assert rig.agent is not None
    await rig.until(lambda: pod.uid in rig.agent.pods.by_uid)
    await rig.api.stop()
    assert (await rig.start(pod)).env["FAKE_SHARES"] == "35"
    await rig.api.start()
    await rig.phase(pod, "Attached")


async def test_a_slot_is_not_given_on_while_the_old_process_lives(rig: NodeRig) -> None:
    old = await rig.placed_pod("gpu-0")
    await rig.start(old)
    (slot,) = rig.kubelet.manager.allocated[old.uid, CONTAINER]
    old.phase = "Succeeded"
    rig.show_pod(old)  # terminal, but its process has not ended
    rig.unplace(old)
    rig.kubelet.manager.healthy = {slot}  # kubelet takes the slot back and gives it away at once
    new = await rig.placed_pod("gpu-1")
    with pytest.raises(StartRefused, match=f"Draining: 1 processes of team/{old.name}"):
        await rig.start(new)
    rig.end_process(old)
    assert (await rig.start(new)).env["FAKE_GPUS"] == "gpu-1"
    await rig.until(lambda: rig.slice_of(old) is None)


async def test_draining_is_said_with_the_name_of_who_remains(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    await rig.start(pod)
    with pytest.raises(StartRefused, match=f"Draining: 1 processes of team/{pod.name}"):
        await rig.kubelet.start_container(pod, CONTAINER)
    rig.end_process(pod)
    await rig.start(pod)


async def test_an_older_leaders_slice_is_not_heard(rig: NodeRig) -> None:
    rig.epoch = 5
    first = rig.a_pod()
    rig.place(first)
    await rig.phase(first, "Reserved")
    late = rig.a_pod()
    rig.place(late, epoch=4)
    again = rig.a_pod()
    rig.place(again)
    await rig.phase(again, "Reserved")
    assert rig.slice_of(late) is None
    assert rig.status()["observedEpoch"] == 5


async def test_a_running_container_whose_slice_left_the_spec_stays_reported(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    rig.unplace(pod)
    filler = await rig.placed_pod()
    assert rig.slice_of(filler) is not None
    assert (await rig.phase(pod, "Attached")).percent == 25
    rig.end_process(pod)
    with pytest.raises(StartRefused, match="PlacementMissing"):
        await rig.start(pod)
    rig.place(pod)
    await rig.until(lambda: rig.status()["observedGeneration"] >= 4)
    await rig.start(pod)


async def test_a_deleted_pod_leaves_no_slice_and_no_file(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    await rig.start(pod)
    rig.remove_pod(pod)
    rig.unplace(pod)
    await rig.until(lambda: rig.slice_of(pod) is None)
    assert list(rig.runtime.cdi_dir.iterdir()) == []
    left = {path.name for path in (rig.root / "run/steps").iterdir()}
    assert left == {".slots"}, "no name leads to the record any more"
    assert [gone.key.pod_uid for gone in rig.devices.released] == [pod.uid]


async def test_a_pod_on_its_way_keeps_its_reservation(rig: NodeRig) -> None:
    pod = rig.a_pod()
    rig.place(pod)
    await rig.phase(pod, "Reserved")
    assert rig.agent is not None
    await rig.agent.reconcile()  # the pod is not bound to this node yet
    assert rig.agent.table.held[0].desired.key.pod_uid == pod.uid
    rig.show_pod(pod)
    await rig.until(lambda: rig.agent.table.held[0].seen)
    rig.api.remove(POD, pod.name, pod.namespace)
    await rig.until(lambda: rig.slice_of(pod) is None)


async def test_what_must_not_share_is_refused_before_it_starts_and_may_go_elsewhere(
    rig: NodeRig,
) -> None:
    mine = await rig.placed_pod()
    await rig.start(mine)
    theirs = rig.a_pod(namespace="another")
    rig.place(theirs)
    refused = await rig.phase(theirs, "Refused")
    assert refused.reason == "TrustDomain"
    assert f"team/{mine.name} is of trust domain 'namespace/team'" in refused.message
    rig.show_pod(theirs)
    await rig.kubelet.admit(theirs)
    with pytest.raises(StartRefused, match=r"^TrustDomain: "):
        await rig.start(theirs)
    rig.place(theirs, "gpu-1")  # the operator plans again
    await rig.phase(theirs, "Reserved")
    assert (await rig.start(theirs)).env["FAKE_GPUS"] == "gpu-1"
    await rig.phase(mine, "Attached")


async def test_a_new_agent_confirms_what_runs_and_what_waits_in_the_same_words(
    rig: NodeRig,
) -> None:
    runs, waits = await rig.placed_pod(memory_mib=16_000), await rig.placed_pod("gpu-1")
    await rig.start(runs)
    refused = rig.a_pod()
    rig.place(refused, memory_mib=1000)
    said = (await rig.phase(refused, "Refused")).message
    rig.devices.devices = [a_device(0, memory_mib=8192), a_device(1)]  # less than before
    await rig.kill_agent()
    await rig.start_agent()
    await rig.phase(runs, "Attached")
    await rig.phase(waits, "Reserved")
    assert (await rig.phase(refused, "Refused")).message == said
    rig.end_process(runs)
    with pytest.raises(StartRefused, match=r"^CapacityExceeded: .*MiB are free"):
        await rig.start(runs)  # a new start is a new decision, and it does not fit any more
