# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Freezing on this machine's kernel, and everything that can go wrong with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.real_freezer import FreezerBench, TickingPod
from ullage_node.guard.finder import (
    CgroupNotFound,
    FreezableCgroup,
    FreezerKind,
    find,
    hierarchy,
    is_container,
    members,
)
from ullage_node.guard.freezer import FreezeFailed, Freezer
from ullage_node.guard.journal import Journal, JournalEntry
from ullage_node.guard.protocol import FreezeTarget, GuardRequest, GuardVerb
from ullage_node.model.devices import ContainerKey

FORKS = """
import os, time
while True:
    child = os.fork()
    if not child:
        time.sleep(0.01)
        os._exit(0)
    os.waitpid(child, 0)
"""


def freeze(*pods: TickingPod, limit_seconds: float = 10.0) -> GuardRequest:
    return GuardRequest(
        verb=GuardVerb.FREEZE,
        number=1,
        targets=tuple(pod.target for pod in pods),
        limit_seconds=limit_seconds,
        why="a test",
    )


def test_a_frozen_container_stands_still_and_goes_on_where_it_was(bench: FreezerBench) -> None:
    pod = bench.pod()
    assert bench.keeper.freeze(freeze(pod)) == ""
    assert pod.stands_still()
    assert [entry.slice for entry in bench.keeper.journal.entries()] == [f"{pod.uid}_main"]
    assert bench.keeper.thaw([pod.target]) == ""
    pod.wait_for_ticks()
    assert bench.keeper.journal.entries() == ()


def test_several_containers_are_stopped_together(bench: FreezerBench) -> None:
    pods = [bench.pod(), bench.pod()]
    assert bench.keeper.freeze(freeze(*pods)) == ""
    assert all(pod.stands_still() for pod in pods)
    assert bench.keeper.thaw_all("done") == ""
    for pod in pods:
        pod.wait_for_ticks()


def test_processes_that_fork_all_the_time_are_all_stopped(bench: FreezerBench) -> None:
    pod = bench.pod()
    forker = subprocess.Popen([sys.executable, "-S", "-c", FORKS])
    try:
        (pod.folder / "cgroup.procs").write_text(str(forker.pid))
        assert bench.keeper.freeze(freeze(pod)) == ""
        place = bench.keeper.journal.entries()[0].place
        before = members(place)
        time.sleep(0.05)
        assert members(place) == before
        assert bench.keeper.thaw([pod.target]) == ""
    finally:
        forker.kill()
        forker.wait()


def test_a_container_is_found_by_its_own_processes_only(bench: FreezerBench) -> None:
    pod, other = bench.pod(), bench.pod()
    place = find(bench.root, Path("/proc"), pod.target)
    assert place.folder.resolve() == pod.folder.resolve()
    for target in (
        replace(pod.target, pids=()),
        replace(pod.target, pids=(other.process.pid,)),
        replace(pod.target, pids=(os.getpid(),)),
        replace(pod.target, key=ContainerKey(pod_uid=str(os.getpid()), container="main")),
    ):
        with pytest.raises(CgroupNotFound):
            find(bench.root, Path("/proc"), target)


def test_a_process_namespace_of_its_own_does_not_hide_the_container(
    one_bench: FreezerBench, tmp_path: Path
) -> None:
    """The kernel's list shows no one there; the host's /proc, mounted elsewhere, does."""
    pod = one_bench.pod()
    proc = tmp_path / "proc" / "999999"
    proc.mkdir(parents=True)
    text = (Path("/proc") / str(pod.process.pid) / "cgroup").read_text()
    (proc / "cgroup").write_text(text.replace(f"/{pod.top.name}", "/../.."))
    target = replace(pod.target, pids=(999999,))
    found = find(one_bench.root, proc.parent, target)
    assert found.folder.resolve() == pod.folder.resolve()


def test_all_or_none(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    request = freeze(pod)
    ghost = FreezeTarget(key=ContainerKey(pod_uid=str(pod.uid)[::-1], container="main"), pids=(2,))
    problem = one_bench.keeper.freeze(replace(request, targets=(*request.targets, ghost)))
    assert "none of its" in problem
    pod.wait_for_ticks()
    assert one_bench.keeper.journal.entries() == ()


def test_what_does_not_stand_still_in_time_runs_again(one_bench: FreezerBench) -> None:
    class Unstoppable(Freezer):
        def is_frozen(self, place: FreezableCgroup) -> bool:
            return False

    pod = one_bench.pod()
    keeper = replace(one_bench.keeper, freezer=Unstoppable(deadline_seconds=0.05))
    assert "not frozen after" in keeper.freeze(freeze(pod))
    pod.wait_for_ticks()
    assert keeper.journal.entries() == ()


def test_nothing_is_stopped_that_could_not_be_noted_first(
    one_bench: FreezerBench, tmp_path: Path
) -> None:
    pod = one_bench.pod()
    (tmp_path / "occupied").write_text("")
    keeper = replace(one_bench.keeper, journal=Journal(folder=tmp_path / "occupied"))
    assert keeper.freeze(freeze(pod)) != ""
    pod.wait_for_ticks()


def test_the_journal_is_written_before_anything_is_stopped(one_bench: FreezerBench) -> None:
    seen: list[int] = []
    keeper = one_bench.keeper

    class Watching(Freezer):
        def freeze(self, places: Collection[FreezableCgroup]) -> None:
            seen.append(len(keeper.journal.entries()))
            raise FreezeFailed("the power went")

    replace(keeper, freezer=Watching()).freeze(freeze(one_bench.pod()))
    assert seen == [1]


def test_whoever_is_overdue_runs_again(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    now = [time.monotonic()]
    keeper = replace(one_bench.keeper, clock=lambda: now[0])
    keeper.freeze(freeze(pod, limit_seconds=3.0))
    now[0] += 2.9
    keeper.thaw_overdue()
    assert pod.stands_still()
    now[0] += 0.2
    keeper.thaw_overdue()
    pod.wait_for_ticks()


def test_a_container_that_was_killed_while_frozen_is_no_problem(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    one_bench.keeper.freeze(freeze(pod))
    os.kill(pod.process.pid, signal.SIGKILL)
    assert one_bench.keeper.thaw([pod.target]) == ""
    pod.close()
    one_bench.keeper.journal.write(an_entry(pod))
    assert one_bench.keeper.thaw_all("it is gone") == ""
    assert one_bench.keeper.journal.entries() == ()


def an_entry(pod: TickingPod, folder: Path | None = None) -> JournalEntry:
    place = FreezableCgroup(folder=folder or pod.folder, kind=FreezerKind.V1)
    return JournalEntry(slice=f"{pod.uid}_main", place=place, since_s=0.0, until_s=1.0)


def test_a_forged_journal_leads_nowhere(one_bench: FreezerBench, tmp_path: Path) -> None:
    pod = one_bench.pod()
    victim = tmp_path / "poda" / "b"
    victim.mkdir(parents=True)
    (victim / "freezer.state").write_text("untouched")
    for folder in (victim, pod.folder / ".." / ".." / ".." / "..", Path("/etc")):
        one_bench.keeper.journal.write(an_entry(pod, folder))
        assert not is_container(one_bench.root, folder)
        assert one_bench.keeper.thaw_all("start") == ""
    assert (victim / "freezer.state").read_text() == "untouched"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"folder": 1}', '{"folder": "/x", "kind": "v3"}'])
def test_entries_that_say_nothing_are_discarded(one_bench: FreezerBench, text: str) -> None:
    journal = one_bench.keeper.journal
    journal.folder.mkdir()
    (journal.folder / "x.json").write_text(text)
    (journal.folder / ".half.json.1a2b3c4d.tmp").write_text(json.dumps({"folder": "/"}))
    assert journal.entries() == ()
    assert one_bench.keeper.thaw_all("start") == ""
    assert list(journal.folder.iterdir()) == []


def test_a_tree_without_any_hierarchy_says_so(tmp_path: Path) -> None:
    with pytest.raises(CgroupNotFound, match="no cgroup hierarchy"):
        hierarchy(tmp_path)
