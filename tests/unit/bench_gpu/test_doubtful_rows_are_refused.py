# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the analysis refuses, what it leaves out and counts, and what a killed run leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.gpu.measured import files_of, load
from bench.gpu.schema import PREFIX, SUFFIX, Cell, RowFile, RowRefused, member, read_cells

TWO = ("DEC", "PRE")


def test_a_row_without_verdict_is_refused_by_file_and_window(draw: Callable[..., Path]) -> None:
    def forget(row: dict[str, Cell]) -> None:
        if row["window_id"] == 3:
            row["attached"] = None

    path = draw("r1", TWO, change=forget)
    with pytest.raises(RowRefused, match=rf"{path.name}: window 3.*no attachment verdict"):
        load([path])


def test_unattached_rows_and_rows_with_errors_are_left_out_and_counted(
    draw: Callable[..., Path],
) -> None:
    def spoil(row: dict[str, Cell]) -> None:
        if row["block"] == "pair":
            row["attached"] = False
        elif row["block"] == "noise":
            row["error"] = "worker gone"

    data = load([draw("r1", TWO, change=spoil)])
    assert data.left_out == {"error": 18, "not attached": 6}
    assert {one.block for one in data.rows} == {"solo", "probe", "reference"}


def test_rows_of_two_gpu_types_are_never_mixed(draw: Callable[..., Path]) -> None:
    one = draw("r1", TWO)
    two = draw("r1", TWO, run="other", change=lambda row: row.update(gpu_name="another"))
    with pytest.raises(RowRefused, match=r"several GPU types.*--gpu"):
        load([one, two])
    assert load([one, two], "another").gpu == "another"


def test_solo_references_of_another_run_do_not_count(draw: Callable[..., Path]) -> None:
    def rename(row: dict[str, Cell]) -> None:
        if row["block"] != "solo":
            row["run_id"] = "later"

    data = load([draw("r1", TWO, change=rename)])
    assert {one.block for one in data.rows} == {"solo"}
    assert "no solo reference in its run" in data.left_out


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"gpu-rows-v99-x{SUFFIX}"
    path.write_bytes(member((), header=True))
    with pytest.raises(RowRefused, match="schema version"):
        read_cells(path)


def test_a_time_that_is_no_number_is_refused(draw: Callable[..., Path]) -> None:
    path = draw("r1", TWO, change=lambda row: row.update(step_ms_mean=float("nan")))
    with pytest.raises(RowRefused, match="a time of nan ms"):
        load([path])


def test_wherever_a_file_is_cut_its_whole_windows_are_readable(tmp_path: Path) -> None:
    path, ends = tmp_path / f"{PREFIX}cut{SUFFIX}", []
    with RowFile(path) as file:
        for number in range(6):
            file.append([{"window_id": number, "tenant": name} for name in ("a", "b")])
            ends.append(path.stat().st_size)
    whole = path.read_bytes()
    first = len(member((), header=True))
    for size in range(first, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        complete = sum(end <= size for end in ends)
        assert [line["window_id"] for line in read_cells(path)] == [
            str(number) for number in range(complete) for _ in "ab"
        ]


def test_a_journal_counts_only_without_its_final_file(tmp_path: Path) -> None:
    journal, final = (tmp_path / f"{PREFIX}x{end}" for end in (f".part{SUFFIX}", SUFFIX))
    journal.write_bytes(b"")
    assert files_of([tmp_path]) == [journal]
    final.write_bytes(b"")
    assert files_of([tmp_path]) == [final]


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RowRefused, match="run r1 first"):
        files_of([tmp_path])
