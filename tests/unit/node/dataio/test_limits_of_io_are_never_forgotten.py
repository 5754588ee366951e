# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The guard's limits of I/O: set, asserted again, undone, across crashes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from fakes.io_tree import IoTree
from ullage.api.readers import WireError
from ullage_node.devices.cgroup_io import IoCgroup, read_limit
from ullage_node.devices.cgroups import CgroupVersion
from ullage_node.guard.io_limits import IoLimiter
from ullage_node.guard.protocol import GuardRequest, GuardVerb, IoLimit, decode_request, encode

HOG = IoCgroup(str(uuid.UUID(int=7)), "cri-containerd-0123.scope")
RATE = 50 << 20


class Files:
    """The limit files of a container: the kernel keeps one line a device, these the last one."""

    def __init__(self, tree: IoTree) -> None:
        self.tree, self.folder = tree, tree.folder(HOG)

    @property
    def read(self) -> int | None:
        kind = CgroupVersion.V2 if self.tree.version == 2 else CgroupVersion.V1
        return read_limit(self.folder, kind, "7:0").read

    def set(self, rate: int | None) -> None:
        if self.tree.version == 2:
            text = f"7:0 rbps={'max' if rate is None else rate} wbps=max\n"
            (self.folder / "io.max").write_text(text)
        else:
            (self.folder / "blkio.throttle.read_bps_device").write_text(f"7:0 {rate or 0}\n")
            (self.folder / "blkio.throttle.write_bps_device").write_text("")


@pytest.fixture(params=[1, 2])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    tree = IoTree(tmp_path / "cgroup", version=request.param)
    tree.write(HOG, {"7:0": (0, 0)})
    return Files(tree)


@pytest.fixture
def limiter(files: Files, tmp_path: Path) -> IoLimiter:
    return again(files, tmp_path)


def again(files: Files, tmp_path: Path) -> IoLimiter:
    """The limiter of the next process."""
    return IoLimiter(cgroup_root=files.tree.root, journal=tmp_path / "guard" / "io-limits.json")


def limit(rate: int = RATE) -> IoLimit:
    return IoLimit(container=HOG, device="7:0", bytes_per_s=rate)


def test_a_limit_is_set_and_undone(files: Files, limiter: IoLimiter) -> None:
    assert limiter.hold([limit()]) == ""
    assert files.read == RATE
    assert limiter.hold([]) == ""
    assert files.read is None
    assert limiter.held == {}


def test_a_limit_that_the_runtime_took_away_is_set_again(files: Files, limiter: IoLimiter) -> None:
    limiter.hold([limit()])
    files.set(None)
    limiter.hold([limit()])
    assert files.read == RATE


def test_a_limit_of_the_runtime_is_only_lowered_and_comes_back(
    files: Files, limiter: IoLimiter
) -> None:
    files.set(20 << 20)
    limiter.hold([limit()])
    assert files.read == 20 << 20
    limiter.hold([limit(10 << 20)])
    assert files.read == 10 << 20
    limiter.hold([])
    assert files.read == 20 << 20


def test_a_crash_forgets_no_limit(files: Files, limiter: IoLimiter, tmp_path: Path) -> None:
    files.set(80 << 20)
    limiter.hold([limit()])
    successor = again(files, tmp_path)
    assert successor.release_all() == ""
    assert files.read == 80 << 20
    assert again(files, tmp_path).held == {}


def test_a_failed_write_is_not_taken_for_the_runtimes_limit(
    files: Files, limiter: IoLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter.hold([limit(40 << 20)])

    def refused(*_: object) -> None:
        raise OSError("no such device")

    with monkeypatch.context() as patched:
        patched.setattr("ullage_node.guard.io_limits.write_limit", refused)
        assert "no such device" in limiter.hold([limit(30 << 20)])
    limiter.hold([limit(20 << 20)])
    assert files.read == 20 << 20
    limiter.hold([])
    assert files.read is None


def test_a_container_that_is_gone_leaves_nothing_behind(files: Files, limiter: IoLimiter) -> None:
    limiter.hold([limit()])
    for file in files.folder.iterdir():
        file.unlink()
    files.folder.rmdir()
    assert limiter.hold([limit()]) == ""
    assert limiter.held == {}


def test_a_journal_that_names_no_container_is_not_followed(
    files: Files, limiter: IoLimiter, tmp_path: Path
) -> None:
    limiter.hold([limit()])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "io.max").write_text("untouched")
    journal = tmp_path / "guard" / "io-limits.json"
    journal.write_text(journal.read_text().replace(str(files.folder), str(elsewhere)))
    again(files, tmp_path).release_all()
    assert (elsewhere / "io.max").read_text() == "untouched"


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[{"before": 1}]', "[" * 100_000])
def test_an_unreadable_journal_stops_nothing(files: Files, tmp_path: Path, text: str) -> None:
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "io-limits.json").write_text(text)
    fresh = again(files, tmp_path)
    assert fresh.hold([limit()]) == ""
    assert files.read == RATE


@pytest.mark.parametrize(
    "change",
    [
        {"podUID": "../../x"},
        {"cgroup": "../x"},
        {"cgroup": "a/b"},
        {"device": "/dev/sda"},
        {"device": "8:0 rbps=1"},
        {"bytesPerSecond": 1},
        {"bytesPerSecond": -1},
    ],
)
def test_requests_that_could_mean_another_path_are_refused(change: dict[str, object]) -> None:
    request = GuardRequest(verb=GuardVerb.LIMIT, number=1, limits=(limit(),))
    assert decode_request(encode(request)) == request
    body = limit().to_wire() | change
    import json

    line = json.dumps({"version": 1, "number": 1, "verb": "limit", "limits": [body]}).encode()
    with pytest.raises(WireError):
        decode_request(line)


def test_more_limits_than_a_node_may_have_are_refused() -> None:
    request = GuardRequest(verb=GuardVerb.LIMIT, number=1, limits=(limit(),) * 65)
    with pytest.raises(WireError, match="at most 64"):
        decode_request(encode(request))
