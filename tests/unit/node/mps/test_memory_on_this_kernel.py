# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The memory that daemon and clients share: mounted, seen by its own daemon alone, taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.mps_programs import PlainDirectories
from ullage_node.mps.places import Mounts, Places, PlaceUnusable
from ullage_node.mps.records import ServerOrder

SYS_ADMIN = 21
"""Number of the capability that mounting needs."""


def may_mount() -> bool:
    """Whether this process may do what the privileged container may."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff"))
    return bool(int(effective.split()[1], 16) >> SYS_ADMIN & 1)


privileged = pytest.mark.skipif(not may_mount(), reason="mounting is not allowed here")


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    root = Path("/tmp") / f"um{os.getpid()}"
    root.mkdir()
    made = Places(root=root, mounts=Mounts())
    yield made
    for number in range(2):
        made.remove(made.of(ServerOrder(uuid=f"GPU-{number}", index=number)))
    root.rmdir()


def listing(shm: Path) -> str:
    """What a daemon started for this place finds in /dev/shm."""
    words = [sys.executable, "-m", "ullage_node.mps.launch", str(shm), "/bin/ls", "/dev/shm"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@privileged
def test_each_daemon_sees_its_own_memory_and_the_hosts_is_left_alone(places: Places) -> None:
    one, two = (places.of(ServerOrder(uuid=f"GPU-{n}", index=n)) for n in range(2))
    for place in (one, two):
        places.prepare(place)
        assert os.path.ismount(place.shm)
        assert place.shm.stat().st_mode & 0o7777 == 0o1777
    (one.shm / "cuda.shm.0.1.1").write_text("")
    assert (listing(one.shm), listing(two.shm)) == ("cuda.shm.0.1.1", "")
    assert "cuda.shm.0.1.1" not in os.listdir("/dev/shm")


@privileged
def test_a_new_daemon_finds_its_directories_empty_and_tenants_keep_their_files(
    places: Places,
) -> None:
    place = places.of(ServerOrder(uuid="GPU-0", index=0))
    places.prepare(place)
    for path in (place.pipe / "control", place.log / "server.log", place.shm / "cuda.shm.0.1.1"):
        path.write_text("stale")
    (place.shm / "torch_1_2").write_text("a tenant's")
    places.prepare(place)
    assert [os.listdir(place.pipe), os.listdir(place.log)] == [[], []]
    assert os.listdir(place.shm) == ["torch_1_2"]


@privileged
def test_nothing_stays_mounted(places: Places) -> None:
    place = places.of(ServerOrder(uuid="GPU-0", index=0))
    places.prepare(place)
    places.prepare(place)
    places.remove(place)
    places.remove(place)
    assert str(place.directory) not in Path("/proc/self/mounts").read_text()
    assert not place.directory.exists()


def test_a_run_directory_that_is_too_long_for_a_socket_is_refused_aloud(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    with pytest.raises(PlaceUnusable, match="at most 107"):
        Places(root=deep, mounts=PlainDirectories()).of(ServerOrder(uuid="GPU-0", index=0))
    product = Places(root=Path("/run/ullage/mps"), mounts=PlainDirectories())
    assert product.of(ServerOrder(uuid="GPU-0", index=255)).pipe == Path("/run/ullage/mps/255/pipe")


def test_a_log_that_grew_too_large_is_emptied(tmp_path: Path) -> None:
    places = Places(root=Path("/tmp"), mounts=PlainDirectories())
    place = places.of(ServerOrder(uuid="GPU-0", index=0))
    place = replace(place, directory=tmp_path)
    place.log.mkdir()
    log = place.log / "control.log"
    log.write_bytes(b"x" * ((8 << 20) + 1))
    places.trim(place)
    assert log.stat().st_size == 0
