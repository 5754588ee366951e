# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild files and sockets of the node: each is refused in its own way, and nothing waits for it."""

from __future__ import annotations

import json
import os
import random
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes import wild
from fakes.scratch import fast_directory
from property.node.test_wild_objects_of_the_api import SLICE
from ullage.api.readers import WireError
from ullage.api.steps import STEP_LAYOUT, StepRecord
from ullage_node.devices.emulated_config import ConfigInvalid, parse_config
from ullage_node.devices.nvidia.cdi import CdiUnusable, ToolkitSpecifications
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.files import read_bounded
from ullage_node.guard import protocol
from ullage_node.guard.journal import Journal, JournalEntry
from ullage_node.guard.machine import GuardMachine
from ullage_node.guard.windows import StepWindows
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
)
from ullage_node.model.guard import Freeze, GuardSubject, GuardTenant
from ullage_node.slices.cdi import ANNOTATION, CDIDirectory
from ullage_node.slices.checkpoint import (
    CheckpointCorrupt,
    SliceCheckpoint,
    _checksum,
    decode,
    encode,
    load,
    restore,
)
from ullage_node.slices.table import SliceTable, binding_of
from ullage_node.step_record import read_step_record
from ullage_node.telemetry.progress import StepTelemetry

pytestmark = pytest.mark.slow

HELD = {"desired": SLICE, "phase": "Attached", "seen": True, "reason": "", "message": ""}
STATE: dict[str, Any] = {
    "version": 1,
    "bootId": "boot-1",
    "epoch": 3,
    "slices": [HELD],
    "slots": {"slot-07": {"podUid": SLICE["podUID"], "container": "main", "index": 0}},
    "quarantine": {"gpu-0": 1_700_000_000.5},
}


def texts(dice: random.Random, good: Any) -> bytes:
    """A file's content: JSON that went wild, or was cut, or is none at all."""
    made = wild.wild(dice, good, changes=2)
    try:
        data = json.dumps(made).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        data = b"[" * 100_000
    kind = dice.randrange(6)
    if kind == 0:
        return data[: dice.randrange(len(data) + 1)]
    if kind == 1:
        return dice.randbytes(dice.randrange(200))
    if kind == 2:
        return b"[" * 50_000 + data
    return data


def test_a_wild_checkpoint_is_set_aside_or_sound() -> None:
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        body = wild.wild(dice, STATE, changes=2)
        try:
            sealed = {**body, "checksum": _checksum(body)} if isinstance(body, dict) else body
            data = json.dumps(sealed).encode("utf-8", "surrogatepass")
        except (RecursionError, ValueError):
            data = b"[" * 100_000
        for content in (data, texts(dice, STATE)):
            try:
                found = decode(content)
            except CheckpointCorrupt:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
            table = SliceTable()
            table.restore(found.epoch, found.held, found.bindings)
            assert table.epoch < 2**62, seed
            assert isinstance(encode(found), bytes)


def test_an_agent_begins_whatever_its_checkpoint_holds(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    contents = [b"", b"\x00" * 1000, b"[" * 10**6, b"9" * 5000, b'{"checksum": ' + b"[" * 10**5]
    for content in contents:
        path.write_bytes(content)
        assert restore(SliceTable(), path, "boot-1").problem
        assert not path.exists(), "it is set aside, so the next start does not meet it again"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert restore(SliceTable(), path, "boot-1").problem
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert restore(SliceTable(), path, "boot-1").problem
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")
    assert restore(SliceTable(), path, "boot-1").problem


def test_a_good_checkpoint_is_read(tmp_path: Path) -> None:
    good = json.dumps({**STATE, "checksum": _checksum(STATE)}).encode()
    found = decode(good)
    assert isinstance(found, SliceCheckpoint)
    (tmp_path / "state.json").write_bytes(good)
    assert load(tmp_path / "state.json") == found


def test_a_wild_file_of_a_slot_is_no_decision() -> None:
    directory = CDIDirectory(fast_directory())
    good = {"devices": [{"annotations": {ANNOTATION: json.dumps(SLICE)}}]}
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        content = texts(dice, good)
        if dice.random() < 0.5:
            inner = texts(dice, SLICE).decode("utf-8", "replace")
            content = json.dumps({"devices": [{"annotations": {ANNOTATION: inner}}]}).encode()
        (directory.path / "ullage.dev-slot-07.json").write_bytes(content)
        found = directory.decision("slot-07")
        if found is not None:
            assert 1 <= found.percent <= 100, seed
            assert "/" not in found.key.directory, seed
    (directory.path / "ullage.dev-slot-07.json").unlink()
    os.mkfifo(directory.path / "ullage.dev-slot-07.json")
    assert directory.decision("slot-07") is None


def test_a_wild_journal_leaves_no_entry_without_an_end() -> None:
    journal = Journal(folder=fast_directory())
    good = {"folder": "/sys/fs/cgroup/x", "kind": "v2", "since": 5.0, "until": 9.0, "why": "w"}
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        (journal.folder / "uid_main.json").write_bytes(texts(dice, good))
        for entry in journal.entries():
            assert isinstance(entry, JournalEntry)
            assert abs(entry.until_s) < 1e309, seed
        journal.discard_unreadable()


def test_a_wild_line_is_refused_by_agent_and_guard() -> None:
    good = {
        "version": 1,
        "verb": "freeze",
        "number": 7,
        "containers": [{"podUID": SLICE["podUID"], "container": "main", "pids": [4711]}],
        "limitSeconds": 2.5,
        "why": "because",
        "problem": "",
    }
    for seed in wild.seeds(200):
        line = texts(random.Random(seed), good)
        for read in (protocol.decode_request, partial(protocol.decode, protocol.GuardAnswer)):
            try:
                read(line)
            except WireError:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}: {read}") from error


def test_a_wild_device_file_is_refused_in_words() -> None:
    good = {"devices": [{"core": 0, "percent": 100, "memoryMiB": 8192, "model": "emulated"}]}
    for seed in wild.seeds(200):
        text = texts(random.Random(seed), good).decode("utf-8", "replace")
        try:
            parse_config(text)
        except ConfigInvalid:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_a_wild_specification_of_the_toolkit_harms_no_device_of_another_file() -> None:
    folder = fast_directory()
    (folder / "a-nvidia.json").write_text(json.dumps(toolkit_file("GPU-1", "/dev/nvidia1")))
    specifications = ToolkitSpecifications((folder,))
    files = {f"GPU-{n}": (f"/dev/nvidia{n}",) for n in range(2)}
    mine, other = (
        NvidiaDevice(uuid=uuid, product_name="", memory_mib=1, minor=0, mig=False) for uuid in files
    )
    for seed in wild.seeds(200):
        path = folder / "nvidia.json"
        path.write_bytes(texts(random.Random(seed), toolkit_file("GPU-0", "/dev/nvidia0")))
        os.utime(path, ns=(seed, seed))
        try:
            edits = specifications.edits((mine,), files)
        except CdiUnusable as refused:
            lines = f"{refused}; {refused.remedy}".splitlines()
        else:
            lines = [""]
            assert edits is None or ContainerEdits.from_wire(edits.to_wire()) == edits, seed
        assert len(lines) == 1, seed
        sound = specifications.edits((other,), files)
        assert sound is not None, seed
        assert sound.device_nodes, seed


def toolkit_file(name: str, path: str) -> dict[str, Any]:
    own = {
        "deviceNodes": [{"path": path, "major": 195, "fileMode": 432, "gid": 44}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/h", "args": ["h"], "env": ["A=1"]}],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro", "rbind"]}],
        "netDevices": [{"hostInterfaceName": "ib0", "name": "net1"}],
        "intelRdt": {"closID": "gpu", "schemata": ["L3:0=f"], "enableMonitoring": True},
        "additionalGids": [44],
        "env": ["A=1"],
    }
    devices = [{"name": name, "annotations": {"a": "b"}, "containerEdits": own}]
    shared = {"deviceNodes": [{"path": "/dev/nvidiactl"}], "additionalGids": [27]}
    kind = {"cdiVersion": "1.1.0", "kind": "nvidia.com/gpu"}
    return {**kind, "devices": devices, "containerEdits": shared}


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "socket", "device", "large"])
def test_only_a_plain_file_of_its_size_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "other").write_bytes(b"secret")
        path.symlink_to(tmp_path / "other")
    elif kind == "socket":
        os.mknod(path, 0o140600)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.write_bytes(bytes(101))
    with pytest.raises(OSError, match=r"file|directory|bytes|device|links"):
        read_bounded(path, 100)


# -- step records --------------------------------------------------------------------------------

NOW_NS = 10**15
WORDS = (0, 1, 2, 1000, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, NOW_NS, NOW_NS - 1)


def record(dice: random.Random) -> bytes:
    """Sixty-four bytes, or another number of them, that a tenant may write."""
    kind = dice.randrange(8)
    if kind == 0:
        return dice.randbytes(64)
    if kind == 1:
        return dice.randbytes(dice.randrange(200))
    words = [dice.choice((*WORDS, dice.randrange(2**64))) for _ in range(6)]
    magic = b"ULST" if kind > 2 else dice.randbytes(4)
    return STEP_LAYOUT.pack(
        magic,
        1 if dice.random() < 0.95 else dice.randrange(2**32),
        *words[:4],
        dice.choice((0, 132, 2**32 - 1)),
        dice.choice((0, 5, 2**32 - 1)),
        *words[4:],
    )


def test_a_wild_record_harms_its_own_container_only() -> None:
    root = fast_directory()
    tenants = [ContainerKey(pod_uid=f"uid-{n}", container="main") for n in range(2)]
    for key in tenants:
        (root / key.directory).mkdir()
    telemetry = StepTelemetry(root)
    seen = {key: Attachment(state=AttachState.ENFORCED, solo_time_ns=10**9) for key in tenants}
    bindings = [binding(key) for key in tenants]
    good = good_record(1)
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        now_s = NOW_NS / 1e9 + (seed & 0xFFFF)
        (root / tenants[0].directory / "record").write_bytes(record(dice))
        good = good_record((seed & 0xFFFF) + 2)
        (root / tenants[1].directory / "record").write_bytes(good)
        found = telemetry.sample(bindings, seen, now_s)
        assert found[tenants[1]].steps == (seed & 0xFFFF) + 2, seed
        for made in found.values():
            for value in (made.steps, made.items, made.step_micros, made.solo_step_micros):
                assert 0 <= value < 2**63, seed
            assert made.step_micros <= 86_400 * 10**6, seed
            assert 0 <= made.checkpoint_age_s < 2**62, seed
            assert 0 <= made.sm_count < 2**31, seed


def good_record(steps: int) -> bytes:
    at = NOW_NS + steps * 10**8 - 10**12
    return STEP_LAYOUT.pack(b"ULST", 1, steps, at, 10**8, steps, 0, 0, 0, steps * 10**8)


def binding(key: ContainerKey) -> ContainerBinding:
    from ullage_node.slices.desired import read_decision

    desired = read_decision({**SLICE, "podUID": key.pod_uid})
    return binding_of([(desired, "slot-07")])


@pytest.mark.parametrize("field", ["last", "checkpoint", "ewma"])
def test_a_time_that_has_not_come_and_an_endless_step_are_refused(
    tmp_path: Path, field: str
) -> None:
    words = {"last": NOW_NS, "checkpoint": NOW_NS, "ewma": 10**9}
    path = tmp_path / "record"

    def write() -> None:
        layout = (b"ULST", 1, 5, words["last"], words["ewma"], 5, 0, 0, words["checkpoint"], 10**9)
        path.write_bytes(STEP_LAYOUT.pack(*layout))

    write()
    assert isinstance(read_step_record(path, NOW_NS), StepRecord)
    words[field] += 10**15
    write()
    with pytest.raises(WireError):
        read_step_record(path, NOW_NS)


def test_no_neighbour_is_paused_for_a_wild_record() -> None:
    """A protected tenant writes what it likes; its best-effort neighbour goes on."""
    key, beside = (ContainerKey(pod_uid=f"uid-{n}", container="main") for n in range(2))
    tenants = [
        GuardTenant(
            key=one,
            namespace="team",
            pod=one.pod_uid,
            gpus=("gpu-0",),
            percent=50,
            epoch=1,
            protected=one is key,
            pids=(1,),
        )
        for one in (key, beside)
    ]
    subject = GuardSubject(key=key, max_slowdown_percent=130, solo_micros=1000)
    path = fast_directory() / "record"
    for seed in list(wild.seeds(200))[:1000]:
        dice = random.Random(seed)
        machine, now = GuardMachine(), NOW_NS / 1e9
        path.write_bytes(good_record(1))

        def read(_: ContainerKey, now_ns: list[int] = [NOW_NS]) -> StepRecord | None:  # noqa: B006
            now_ns[0] += 10**9
            return read_step_record(path, now_ns[0])

        windows = StepWindows(read)
        for _ in range(40):
            now += 1.0
            path.write_bytes(wildly(dice))
            machine.see(tenants, now)
            for window in windows.next((subject,), now):
                actions = machine.window(window, now)
                assert not [one for one in actions if isinstance(one, Freeze)], seed


def wildly(dice: random.Random) -> bytes:
    """A record whose numbers are beyond what any program reaches."""
    huge = dice.choice((2**62, 2**63 - 1, 2**63, 2**64 - 1))
    at = dice.choice((0, huge, NOW_NS + 10**13))
    return struct.pack(
        "<4sIQQQQIIQQ", b"ULST", 1, dice.randrange(1, 100), at, huge, 5, 0, 0, 0, huge
    )
