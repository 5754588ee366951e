# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report


def test_figures_and_machine_are_written_and_the_table_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [report.Row(what="a cycle", ours="3 ms", baseline="9 ms", limit="1 s")]
    file = report.write("decide", {"p50_s": 0.003, "rss_mib": None}, rows, folder=tmp_path / "new")
    body = json.loads(file.read_text(encoding="utf-8"))
    assert file.name == "decide.json"
    assert (body["name"], body["figures"]) == ("decide", {"p50_s": 0.003, "rss_mib": None})
    assert set(body["machine"]) == {"cpus", "model", "python"}
    printed = capsys.readouterr().out
    assert all(cell in printed for cell in ("bench decide", "a cycle", "3 ms", "9 ms", "1 s"))


def test_a_figure_that_is_no_number_fails_instead_of_writing_bad_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        report.write("decide", {"p50_s": float("nan")}, [], folder=tmp_path)
