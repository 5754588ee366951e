# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.device_rigs import a_binding
from ullage.api.readers import WireError
from ullage.api.slices import ObservedRank
from ullage.api.steps import RANK_LAYOUT, RANK_MAGIC, RANK_VERSION
from ullage_node.telemetry.ranks import RankTelemetry, read_rank_records

KEY = a_binding("gpu-0").key
MS = 10**6
NOW = 10**12


def packed(steps: int, *, rank: int = 0, world: int = 2, at: int = NOW, **sums: int) -> bytes:
    """A record after so many steps of 50 ms; ``sums`` replace sums of times, in ns."""
    times = {"step": 50, "compute": 30, "wait": 12, "data": 6}
    of = {name: sums.get(name, steps * milliseconds * MS) for name, milliseconds in times.items()}
    return RANK_LAYOUT.pack(
        RANK_MAGIC, sums.get("version", RANK_VERSION), steps, at, rank, world,
        of["step"], of["compute"], of["wait"], of["data"], steps * 8, steps * 1024,
        sums.get("timed", steps), sums.get("batch", 0), sums.get("even_batch", 0),
        sums.get("even_reason", 0), sums.get("even_step", 0), sums.get("throttled", 0),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory of ranks of the container."""
    folder = tmp_path / KEY.directory / "trace"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def ranks(tmp_path: Path) -> RankTelemetry:
    return RankTelemetry(tmp_path)


def test_figures_are_means_between_readings(folder: Path, ranks: RankTelemetry) -> None:
    (folder / "record-1").write_bytes(packed(10, rank=3, world=4))
    ranks.sample([KEY], NOW)
    assert ranks.observed[KEY] == (ObservedRank(rank=3, steps=10),), "no mean of one reading"
    (folder / "record-1").write_bytes(packed(30, rank=3, world=4))
    ranks.sample([KEY], NOW)
    assert ranks.observed[KEY] == (
        ObservedRank(
            rank=3,
            steps=30,
            step_micros=50_000,
            compute_micros=30_000,
            wait_micros=12_000,
            data_wait_micros=6_000,
        ),
    )


def test_figures_follow_a_change_within_a_minute(folder: Path, ranks: RankTelemetry) -> None:
    step_ns = compute_ns = 0
    for second in range(0, 300, 5):
        slow = second > 200
        step_ns += 100 * 50 * MS
        compute_ns += 100 * (40 if slow else 10) * MS
        at = NOW + second * 1000 * MS
        raw = packed((second // 5 + 1) * 100, at=at, step=step_ns, compute=compute_ns)
        (folder / "record-0").write_bytes(raw)
        ranks.sample([KEY], at)
    assert ranks.observed[KEY][0].compute_micros == 40_000


def test_a_new_process_in_the_place_of_a_rank_begins_anew(
    folder: Path, ranks: RankTelemetry
) -> None:
    for steps in (10, 30, 2, 4):
        (folder / "record-0").write_bytes(packed(steps))
        ranks.sample([KEY], NOW)
    assert (ranks.observed[KEY][0].steps, ranks.observed[KEY][0].step_micros) == (4, 50_000)


def test_containers_without_ranks_and_those_that_are_gone_have_no_figures(
    folder: Path, ranks: RankTelemetry
) -> None:
    ranks.sample([KEY, a_binding("gpu-0").key], NOW)
    assert ranks.observed == {}
    (folder / "record-0").write_bytes(packed(5))
    ranks.sample([KEY], NOW)
    ranks.sample([], NOW)
    assert (ranks.observed, ranks.invalid_total) == ({}, 0)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "0 bytes"),
        (packed(1) + b"x", "129 bytes"),
        (b"NOPE" + packed(1)[4:], "magic"),
        (packed(1, version=2), "version 2"),
        (packed(5, wait=(1 << 64) - 1), "no program reaches"),
        (packed(5, compute=1 << 63), "no program reaches"),
        (packed(5, world=1 << 31), "no program reaches"),
        (packed(5, rank=2), "rank 2 of 2"),
        (packed(5, rank=999_999_999, world=0), "rank 999999999 of 0"),
        (packed(5, at=NOW + 2 * 10**9), "not come yet"),
        (packed(1, step=86_401 * 10**9), "more than a day"),
        (packed(5, timed=6), "timed 6 of 5"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(
    folder: Path, ranks: RankTelemetry, raw: bytes, text: str
) -> None:
    (folder / "record-0").write_bytes(raw)
    (folder / "record-1").write_bytes(packed(5, rank=1))
    found = read_rank_records(folder.parent, NOW)
    error = found["record-0"]
    assert isinstance(error, WireError)
    with pytest.raises(WireError, match=text):
        raise error
    ranks.sample([KEY], NOW)
    assert [rank.rank for rank in ranks.observed[KEY]] == [1], "it harms no other rank"
    assert ranks.invalid_total == 1


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("plant", [link, os.mkfifo, os.mkdir], ids=["link", "pipe", "folder"])
def test_what_a_tenant_plants_in_the_place_of_a_record_is_never_opened(
    folder: Path, ranks: RankTelemetry, plant: Callable[[Path], None]
) -> None:
    plant(folder / "record-0")
    ranks.sample([KEY], NOW)
    assert (ranks.observed, ranks.invalid_total) == ({}, 1)


def test_sixteen_ranks_are_read_and_other_names_are_not(folder: Path, ranks: RankTelemetry) -> None:
    for rank in range(40):
        (folder / f"record-{rank}").write_bytes(packed(5, rank=rank, world=64))
    (folder / "record-00").write_bytes(packed(5))
    ranks.sample([KEY], NOW)
    assert [rank.rank for rank in ranks.observed[KEY]] == list(range(16))


def test_a_record_that_nothing_was_written_to_says_nothing(
    folder: Path, ranks: RankTelemetry
) -> None:
    (folder / "record-0").write_bytes(bytes(128))
    ranks.sample([KEY], NOW)
    assert (ranks.observed, ranks.invalid_total) == ({}, 0)


def test_how_batches_are_divided_is_read(folder: Path, ranks: RankTelemetry) -> None:
    divided = {"batch": 18, "even_batch": 32, "even_reason": 2, "even_step": 268 * MS}
    (folder / "record-0").write_bytes(packed(10, at=NOW - 1000 * MS, **divided))
    ranks.sample([KEY], NOW)
    (folder / "record-0").write_bytes(packed(30, throttled=600 * MS, **divided))
    ranks.sample([KEY], NOW)
    (rank,) = ranks.observed[KEY]
    assert (rank.batch, rank.even_batch, rank.even_step_micros) == (18, 32, 268_000)
    assert rank.even_reason == "BatchNorm"
    assert rank.throttled_percent == 60


def test_an_unknown_reason_is_none(folder: Path, ranks: RankTelemetry) -> None:
    (folder / "record-0").write_bytes(packed(10, even_reason=2**64 - 1))
    ranks.sample([KEY], NOW)
    assert ranks.observed[KEY][0].even_reason == ""
