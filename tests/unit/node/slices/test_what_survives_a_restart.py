# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.model.slices import NodeDevice
from ullage_node.slices.checkpoint import (
    CheckpointCorrupt,
    Saver,
    SliceCheckpoint,
    decode,
    encode,
    load,
    remove,
    restore,
    save,
    snapshot,
)
from ullage_node.slices.table import SliceTable, binding_of

PART = DesiredSlice(
    key=SliceKey(pod_uid="uid-1", container="main"),
    pod_namespace="team",
    pod_name="trainer",
    gpu="gpu-0",
    percent=40,
    memory_mib=1000,
    epoch=3,
)
WAITING = replace(PART, key=SliceKey(pod_uid="uid-2", container="main"))


def a_table() -> SliceTable:
    table = SliceTable()
    table.set_devices([NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3)])
    table.intake(4, [PART, WAITING])
    table.bind(binding_of([(PART, "slot-07")]))
    return table


def test_a_checkpoint_reads_back_as_it_was() -> None:
    state = snapshot(a_table(), "boot-1", {"gpu-9": 12.5})
    read = decode(encode(state))
    assert read == replace(state, held=tuple(replace(p, in_spec=False) for p in state.held))


def test_the_file_says_who_holds_each_slot() -> None:
    body = json.loads(encode(snapshot(a_table(), "boot-1", {})))
    assert body["slots"] == {"slot-07": {"podUid": "uid-1", "container": "main", "index": 0}}
    assert (body["version"], body["bootId"], body["epoch"]) == (1, "boot-1", 4)


@pytest.mark.parametrize("position", [0, 20, 200, 500, -2])
def test_a_changed_byte_is_noticed(position: int) -> None:
    data = bytearray(encode(snapshot(a_table(), "boot-1", {})))
    data[position] ^= 1
    with pytest.raises(CheckpointCorrupt):
        decode(bytes(data))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"slots": {"slot-01": {"podUid": "x", "container": "y", "index": 0}}}, "unknown slice"),
        ({"epoch": "three"}, "epoch"),
        ({"quarantine": {"gpu-0": "later"}}, "quarantine"),
    ],
)
def test_a_well_signed_file_of_another_shape_is_refused(
    change: dict[str, object], words: str
) -> None:
    from ullage_node.slices import checkpoint

    body = json.loads(encode(snapshot(a_table(), "boot-1", {}))) | change
    del body["checksum"]
    data = json.dumps(body | {"checksum": checkpoint._checksum(body)}).encode()
    with pytest.raises(CheckpointCorrupt, match=words):
        decode(data)


def test_a_restored_book_holds_the_same_room_and_slots(tmp_path: Path) -> None:
    path = tmp_path / "node/state.json"
    save(path, snapshot(a_table(), "boot-1", {"gpu-0": 5.0}))
    table = SliceTable()
    restored = restore(table, path, "boot-1")
    assert restored.quarantine == {"gpu-0": 5.0}
    assert [part.phase for part in table.held] == [SlicePhase.PREPARED, SlicePhase.RESERVED]
    assert table.holder("slot-07") is not None
    table.set_devices([NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3)])
    assert table.intake(4, [PART, WAITING]) == ()  # older than the book's epoch, but unchanged
    assert all(part.in_spec for part in table.held)


def test_after_another_boot_nothing_is_bound(tmp_path: Path) -> None:
    path = tmp_path / "node/state.json"
    save(path, snapshot(a_table(), "boot-1", {}))
    table = SliceTable()
    restore(table, path, "boot-2")
    assert dict(table.slots) == {}
    assert {part.phase for part in table.held} == {SlicePhase.RESERVED}


def test_a_corrupt_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"{")
    restored = restore(SliceTable(), path, "boot-1")
    assert "set aside" in restored.problem
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json.corrupt"]
    assert load(path) is None


def test_a_first_start_has_nothing_to_restore(tmp_path: Path) -> None:
    assert restore(SliceTable(), tmp_path / "none/state.json", "boot-1").problem == ""


def test_removal_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for name in ("state.json", "state.json.corrupt", ".state.json.00aa11bb.tmp"):
        (tmp_path / name).write_text("x")
    remove(path)
    assert list(tmp_path.iterdir()) == []


async def test_one_write_per_change(tmp_path: Path) -> None:
    table = a_table()
    saver = Saver(tmp_path / "state.json", lambda: snapshot(table, "boot-1", {}))
    await asyncio.gather(*(saver.save() for _ in range(5)))
    assert saver.writes == 1
    table.intake(5, [PART])
    await saver.save()
    assert saver.writes == 2


async def test_a_disabled_saver_writes_nothing(tmp_path: Path) -> None:
    state = SliceCheckpoint(boot_id="b", epoch=1)
    saver = Saver(tmp_path / "state.json", lambda: state)
    await saver.disable()
    await saver.save()
    assert os.listdir(tmp_path) == []
