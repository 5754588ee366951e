# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage trace show`` says what files of the profiler show, or why it cannot."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from fakes.kineto_traces import Event, document, fetch, gloo, operation, step
from ullage.api.rank_traces import RankTrace
from ullage.cli.main import app
from ullage.engines.tracing.job_trace import JobTrace


def rank_file(folder: Path, rank: int | None, data: float, packed: bool = False) -> str:
    """Five steps of a rank that fetches for so long; both ranks meet at 900 of each step."""
    events: list[Event] = []
    for number in range(5):
        start = number * 1000.0
        events += [step(number + 1, start, 990), fetch(start, data)]
        events += [operation(start + data, 100), gloo(start + data + 100, 800 - data)]
    head: dict[str, object] = {} if rank is None else {"distributedInfo": {"rank": rank}}
    path = folder / f"rank-{rank}-{data:.0f}.json{'.gz' if packed else ''}"
    body = document(events, **head)
    path.write_bytes(gzip.compress(body) if packed else body)
    return str(path)


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["trace", "show", *arguments])


def test_ranks_are_shown_with_their_straggler(tmp_path: Path) -> None:
    files = [rank_file(tmp_path, 0, 50), rank_file(tmp_path, 1, 600, packed=True)]
    result = shown(*files, "--one-node")
    assert result.exit_code == 0
    shown_words = " ".join(result.stdout.split())  # a narrow terminal wraps lines
    assert shown_words.startswith("2 ranks, 5 steps, compute 10 %")
    assert "; rank 1 arrives last in 5 of 5 collectives (input) " in shown_words
    assert " 0 5 1.0 " in shown_words
    assert "clocks: OneClock" in result.stdout.splitlines()
    assert "Straggler: rank 1 arrives last" in shown_words


def test_a_single_file_shows_its_path_and_operations(tmp_path: Path) -> None:
    result = shown(rank_file(tmp_path, None, 50))
    assert result.exit_code == 0
    assert "critical path: compute 10 %, communication 75 %" in result.stdout
    assert "aten::mm" in result.stdout
    assert "clocks" not in result.stdout


def test_scripts_get_what_a_status_has(tmp_path: Path) -> None:
    file = rank_file(tmp_path, 3, 50)
    body = json.loads(shown(file, "-o", "json").stdout)
    assert JobTrace.from_wire(body["job"]).steps == 5
    assert RankTrace.from_wire(body["ranks"][0]).rank == 3
    assert yaml.safe_load(shown(file, "-o", "yaml").stdout) == body
    view = json.loads(shown(file, "-o", "perfetto").stdout)
    assert {"step", "collective"} <= {event.get("cat") for event in view["traceEvents"]}


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{}")
    result = shown(str(path))
    assert result.exit_code == 1
    assert f"error: {path}: TraceInvalid: this is no trace" in result.stderr
    result = shown(str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("ranks", "says"),
    [((0, 0), "all say rank 0"), ((0, None), "does not say its rank")],
)
def test_files_are_of_different_ranks(
    tmp_path: Path, ranks: tuple[int | None, ...], says: str
) -> None:
    files = [rank_file(tmp_path, rank, 50 + at) for at, rank in enumerate(ranks)]
    result = shown(*files)
    assert result.exit_code == 1
    assert says in result.stderr


def test_files_that_say_no_rank_are_taken_in_order(tmp_path: Path) -> None:
    files = [rank_file(tmp_path, None, data) for data in (50, 51)]
    body = json.loads(shown(*files, "-o", "json").stdout)
    assert [rank["rank"] for rank in body["job"]["ranks"]] == [0, 1]
