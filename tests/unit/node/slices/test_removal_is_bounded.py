# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ullage_node.model.devices import ContainerKey
from ullage_node.slices.removal import Trash
from ullage_node.slices.steps import StepRecords

KEY = ContainerKey(pod_uid="uid-1", container="main")
DEPTH = 1200
"""Deeper than Python recurses and, with these names, longer than any path may be."""


def nest(folder: Path, depth: int) -> None:
    """Make directories in one another, as a tenant does it: by changing into each."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("a-directory-name", dir_fd=at)
        below = os.open("a-directory-name", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def drain(trash: Trash, entries: int = 500) -> int:
    passes = 1
    while not trash.empty(entries):
        passes += 1
        assert passes < 10_000
    return passes


def test_a_container_may_leave_a_tree_of_any_depth(tmp_path: Path) -> None:
    steps = StepRecords(tmp_path / "steps")
    steps.of(KEY).mkdir(parents=True)  # as agents made it that mounted directories
    nest(steps.of(KEY), DEPTH)
    steps.remove(KEY)
    assert not steps.of(KEY).exists()
    drain(steps.trash)
    assert list(steps.trash.path.iterdir()) == []


def test_a_sweep_takes_any_tree_and_ends(tmp_path: Path) -> None:
    steps = StepRecords(tmp_path / "steps")
    steps.of(KEY).mkdir(parents=True)  # as agents made it that mounted directories
    nest(steps.of(KEY), DEPTH)
    steps.sweep(())
    assert not steps.of(KEY).exists()
    drain(steps.trash)


@pytest.mark.slow
def test_a_tree_in_the_place_of_the_record_does_not_stop_the_next_start(tmp_path: Path) -> None:
    steps = StepRecords(tmp_path / "steps")
    record = steps.reset(KEY, "slot-00")
    record.unlink()
    record.mkdir()
    nest(record, DEPTH)
    steps.reset(KEY, "slot-00")
    assert record.read_bytes() == bytes(64)
    drain(steps.trash)
    drain(steps.trash)  # the test run itself removes its folders by recursion


def test_a_pass_looks_at_no_more_entries_than_it_is_allowed(tmp_path: Path) -> None:
    trash, full = Trash(tmp_path / "trash"), tmp_path / "full"
    full.mkdir()
    for number in range(1000):
        (full / str(number)).touch()
    trash.put(full)
    assert not trash.empty(100)
    (left,) = trash.path.iterdir()
    assert 890 <= len(list(left.iterdir())) <= 910
    assert drain(trash, 100) <= 12


async def test_what_is_thrown_away_is_gone_before_the_agent_retires(tmp_path: Path) -> None:
    trash, full = Trash(tmp_path / "trash"), tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    trash.put(full)
    await trash.drain(0.5)
    assert list(trash.path.iterdir()) == []


def test_links_and_what_they_point_at_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    trash, full = Trash(tmp_path / "trash"), tmp_path / "full"
    full.mkdir()
    (full / "absolute").symlink_to(outside)
    (full / "relative").symlink_to("../../outside")
    (full / "itself").symlink_to(full)
    trash.put(full)
    drain(trash)
    assert (outside / "kept").exists()
    assert list(trash.path.iterdir()) == []


def test_a_link_in_the_place_of_the_directory_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    steps = StepRecords(tmp_path / "steps")
    steps.path.mkdir()
    steps.of(KEY).symlink_to(outside)
    assert (steps.reset(KEY, "slot-00")).read_bytes() == bytes(64)
    drain(steps.trash)
    assert [entry.name for entry in outside.iterdir()] == ["kept"]


def test_everything_that_a_tenant_can_make_goes(tmp_path: Path) -> None:
    trash, full = Trash(tmp_path / "trash"), tmp_path / "full"
    full.mkdir()
    os.mkfifo(full / "pipe")
    os.mkdir(os.fsencode(full) + b"/\xff\xfe\n" + b"x" * 200)
    shut = full / "shut"
    (shut / "inner").mkdir(parents=True)
    shut.chmod(0)
    trash.put(full)
    drain(trash)
    assert list(trash.path.iterdir()) == []


def test_what_cannot_be_removed_is_counted_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash = Trash(tmp_path / "trash")
    for name in ("first", "second"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "mounted").touch()
        trash.put(tmp_path / name)
    real = os.unlink

    def unlink(name: str, *, dir_fd: int) -> None:
        if name == "mounted":
            raise OSError(16, "Device or resource busy", name)
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    assert trash.empty()
    assert trash.stuck == 2
    (tmp_path / "third").mkdir()
    trash.put(tmp_path / "third")
    assert trash.empty()
    assert len(list(trash.path.iterdir())) == 2


def test_a_tenant_that_still_writes_is_not_waited_for(tmp_path: Path) -> None:
    trash, full = Trash(tmp_path / "trash"), tmp_path / "full"
    full.mkdir()
    held = os.open(full, os.O_RDONLY | os.O_DIRECTORY)
    trash.put(full)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set() and number < 10_000:  # more than all removals below together
            number += 1
            try:
                os.mkdir(str(number), dir_fd=held)
            except OSError:
                return  # the directory is gone

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            trash.empty(200)  # returns each time
    finally:
        stop.set()
        writer.join()
        os.close(held)
    drain(trash)
    assert list(trash.path.iterdir()) == []


def test_a_later_process_goes_on(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    nest(full, DEPTH)
    first = Trash(tmp_path / "trash")
    first.put(full)
    assert not first.empty(100)
    drain(Trash(tmp_path / "trash"))
    assert list(first.path.iterdir()) == []
