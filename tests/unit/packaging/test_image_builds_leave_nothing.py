# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import hashlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from demo import images
from demo.progress import CommandFailed, Progress


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A working tree of which no command is run; returns the commands."""
    calls: list[tuple[str, ...]] = []

    def run(*command: str, env: object = None) -> str:
        calls.append(command)
        if "build" in command:
            raise CommandFailed("the build is broken")
        return "container\n"

    monkeypatch.setattr(images, "run", run)
    for name in ("IMAGES", "STORAGE", "WHEELS", "BASE_ROOT"):
        monkeypatch.setattr(images, name, tmp_path / "build" / name.lower())
    monkeypatch.setattr(images, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(images, "install_tools", lambda *_: None)
    monkeypatch.setattr(images, "_base", lambda *_: tmp_path / "base.tar")
    return calls


def test_a_build_that_fails_says_why_and_leaves_no_storage(tree: list[tuple[str, ...]]) -> None:
    with pytest.raises(CommandFailed, match="the build is broken"):
        images.build_all(Progress())
    assert not images.STORAGE.exists()


def test_a_base_is_pulled_and_built_upon_by_its_digest(
    tree: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = f"registry.example/python:3.11@sha256:{'a' * 64}"
    monkeypatch.setattr(images, "_wheels", lambda *_: None)
    with pytest.raises(CommandFailed, match="the build is broken"):
        images.build_all(Progress(), base=base)
    pull, build = tree
    assert (pull[5], pull[-1]) == ("pull", base)
    assert f"BASE={base}" in build
    assert images.base_of("amd64", base) == ("registry.example/python:3.11", "a" * 64)
    assert images.build_key(base) != images.build_key()


def test_a_base_that_is_made_has_the_checksum_of_its_archive(
    tree: list[tuple[str, ...]],
) -> None:
    archive = images._base_archive("amd64")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"base")
    name, checksum = images.base_of("amd64")
    assert (name, checksum) == ("debootstrap:bookworm", hashlib.sha256(b"base").hexdigest())


def test_what_a_killed_build_left_goes_first(tree: list[tuple[str, ...]]) -> None:
    (images.STORAGE / "root").mkdir(parents=True)
    with images._emptied(images.STORAGE) as storage:
        assert list(storage.iterdir()) == []
    assert not images.STORAGE.exists()


def test_mounts_are_found_in_their_order_with_spaces_in_their_names() -> None:
    text = (
        "1 0 8:1 / / rw\n2 1 0:5 / /a/my\\040tree/storage rw\n"
        "3 2 0:6 / /a/my\\040tree/storage/merged rw\n4 1 0:7 / /a/my\\040tree/storages rw\n"
    )
    assert images.mounts_below(Path("/a/my tree/storage"), text) == [
        "/a/my tree/storage",
        "/a/my tree/storage/merged",
    ]


def test_a_second_build_waits_for_the_first(
    tree: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    images.STORAGE.parent.mkdir(parents=True)
    built = threading.Event()
    monkeypatch.setattr(images, "_build_missing", lambda *_: built.set())
    with images.STORAGE.with_suffix(".lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = threading.Thread(target=images.build_all, args=(Progress(),), daemon=True)
        second.start()
        time.sleep(0.2)
        assert not built.is_set()
    assert built.wait(20)
    second.join(20)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Builds that were begun beside something else; each takes a minute."""
    found: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[1:] == ["-m", "demo.images"]
        found.append(Popen([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        return found[-1]

    monkeypatch.setattr(images.subprocess, "Popen", begin)
    return found


def test_a_build_beside_a_start_that_fails_ends_with_it(
    tree: list[tuple[str, ...]], begun: list[subprocess.Popen[bytes]]
) -> None:
    with pytest.raises(CommandFailed, match="no kubelet"), images.building(Progress()):
        raise CommandFailed("no kubelet")
    (build,) = begun
    assert build.returncode == -signal.SIGTERM


def test_images_that_are_up_to_date_begin_no_build(
    tree: list[tuple[str, ...]], begun: list[subprocess.Popen[bytes]]
) -> None:
    images.IMAGES.mkdir(parents=True)
    for archive in images._archives(images.this_platform()).values():
        archive.touch()
    with images.building(Progress()):
        assert begun == []
