# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Only what changed is sent to the deciding process, and a missed piece is noticed."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from builders import EPOCH, NOW, a_gpu_node, a_job, a_node, a_snapshot
from fakes.deciding import SETTINGS, decided
from ullage.api.slices import SliceKey
from ullage.app.transfer import LostBase, Packer, Unpacker, pack_answer, unpack_answer
from ullage.scheduling.model.plan import ApplyGPUNode

FIRST = a_snapshot(a_gpu_node(), *[a_job(f"job-{at}") for at in range(50)])


def test_an_unchanged_picture_costs_next_to_nothing() -> None:
    packer = Packer()
    whole = packer.pack(FIRST, NOW, SETTINGS)
    again = packer.pack(replace(FIRST, version=2), NOW, SETTINGS)
    assert len(again) * 10 < len(whole)


def test_changes_additions_and_removals_arrive() -> None:
    packer, unpacker = Packer(), Unpacker()
    assert unpacker.unpack(packer.pack(FIRST, NOW, SETTINGS)) == (FIRST, NOW, SETTINGS)
    workloads = dict(FIRST.workloads)
    del workloads["uid-default-job-3"]
    workloads["uid-default-new"] = a_job("new").build()
    workloads["uid-default-job-4"] = a_job("job-4").priority(9).build()
    second = replace(
        FIRST,
        version=2,
        workloads=workloads,
        nodes=FIRST.nodes | {"node-9": a_node("node-9")},  # type: ignore[operator]
        creating=frozenset({("default", "new-0")}),
    )
    found, now, _ = unpacker.unpack(packer.pack(second, NOW + 1, SETTINGS))
    assert found == second
    assert now == NOW + 1


def test_what_did_not_change_stays_the_receivers_own_object() -> None:
    packer, unpacker = Packer(), Unpacker()
    before, _, _ = unpacker.unpack(packer.pack(FIRST, NOW, SETTINGS))
    heard = replace(FIRST.gpu_nodes["node-1"], heartbeat=NOW + 9)
    second = replace(FIRST, version=2, gpu_nodes={**FIRST.gpu_nodes, "node-1": heard})
    after, _, _ = unpacker.unpack(packer.pack(second, NOW + 9, SETTINGS))
    assert after == second
    assert after.policy is before.policy
    assert after.workloads is before.workloads
    assert after.gpu_nodes["node-1"].heartbeat == NOW + 9
    assert after.gpu_nodes["node-1"].devices is before.gpu_nodes["node-1"].devices


def test_of_what_holds_others_only_the_new_ones_travel() -> None:
    packer, unpacker = Packer(), Unpacker()
    node = FIRST.gpu_nodes["node-1"]
    old = [SliceKey(pod_uid=f"pod-{at}", container="main", index=0) for at in range(2)]
    node = replace(node, devices=node.devices * 2, desired_since=dict.fromkeys(old, NOW))
    first = replace(FIRST, gpu_nodes={"node-1": node})
    before, _, _ = unpacker.unpack(packer.pack(first, NOW, SETTINGS))
    other = replace(node.devices[0], contexts=7)
    new = SliceKey(pod_uid="pod-2", container="main", index=0)
    since = {old[1]: NOW, new: NOW + 1, old[0]: NOW + 2}
    changed = replace(node, devices=(other, node.devices[1]), desired_since=since)
    second = replace(first, gpu_nodes={"node-1": changed})
    after, _, _ = unpacker.unpack(packer.pack(second, NOW, SETTINGS))
    assert after == second
    found = after.gpu_nodes["node-1"]
    assert list(found.desired_since.items()) == list(since.items())
    assert found.devices[1] is before.gpu_nodes["node-1"].devices[1]


def test_one_entry_of_many_costs_next_to_nothing() -> None:
    packer = Packer()
    keys = [SliceKey(pod_uid=f"pod-{at}", container="main", index=0) for at in range(500)]
    times = {key: NOW + at for at, key in enumerate(keys)}
    node = replace(FIRST.gpu_nodes["node-1"], desired_since=times)
    first = replace(FIRST, gpu_nodes={"node-1": node})
    whole = packer.pack(first, NOW, SETTINGS)
    later = replace(node, desired_since={**times, keys[7]: NOW + 9_999})
    changed = packer.pack(replace(first, version=2, gpu_nodes={"node-1": later}), NOW, SETTINGS)
    assert len(changed) * 10 < len(whole)


def test_a_receiver_that_missed_a_piece_says_so() -> None:
    packer, unpacker = Packer(), Unpacker()
    packer.pack(FIRST, NOW, SETTINGS)
    with pytest.raises(LostBase, match="builds on 1"):
        unpacker.unpack(packer.pack(FIRST, NOW, SETTINGS))
    packer.reset()
    assert unpacker.unpack(packer.pack(FIRST, NOW, SETTINGS))[0] == FIRST


def test_a_plain_snapshot_is_understood_too() -> None:
    payload = pickle.dumps((FIRST, NOW, SETTINGS))
    assert Unpacker().unpack(payload) == (FIRST, NOW, SETTINGS)


def test_the_answer_bears_what_changes_and_no_more() -> None:
    job = a_job()
    found = decided(a_gpu_node(), a_gpu_node("node-2"), job, *job.pods())
    plan, actions = unpack_answer(
        pack_answer(found.plan, found.actions, found.snapshot), found.snapshot
    )
    assert actions == found.actions
    assert set(plan.slices) == {"node-1"}
    assert set(plan.statuses) == {job.build().ref.uid}
    applied = [one for one in actions if isinstance(one, ApplyGPUNode)]
    assert [(one.name, one.epoch) for one in applied] == [("node-1", EPOCH)]
