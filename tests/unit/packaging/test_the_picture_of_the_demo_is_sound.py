# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The README's picture is what ``make demo`` printed: columns in line, states that agree."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from unit.packaging.repository import ROOT
from unit.packaging.shown import commands_of
from unit.packaging.shown_programs import faults

PICTURE: Final = (ROOT / "docs" / "demo.svg").read_text(encoding="utf-8")
WIDTH: Final = 12.2
"""Of a character."""
SPAN: Final = re.compile(
    r'<text class="[\w-]+-r\d+" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"[^>]*>([^<]*)</text>'
)


def lines(picture: str) -> list[str]:
    """The lines of a picture, each character in its column."""
    rows: dict[float, list[str]] = defaultdict(list)
    for x, y, length, said in SPAN.findall(picture):
        text = html.unescape(said).replace("\xa0", " ").rstrip("\n")
        row, start = rows[float(y)], round(float(x) / WIDTH)
        if not text:
            continue  # the end of a line
        assert round(float(length) / WIDTH) == len(text), text
        row += " " * (start - len(row))
        row[start : start + len(text)] = text
    return ["".join(rows[y]).rstrip() for y in sorted(rows)]


def tables(shown: list[str], first: str) -> list[list[dict[str, str]]]:
    """Tables with this first heading: rows as cells by heading."""
    found = []
    for number, heading in enumerate(shown):
        if heading.split()[:1] != [first]:
            continue
        starts = [match.start() for match in re.finditer(r"\S+", heading)]
        rows = []
        for line in shown[number + 1 :]:
            if not line.strip() or line.startswith(("$", "...", "ok ")):
                break
            assert all(line[start - 1 : start].strip() == "" for start in starts[1:]), line
            ends = [*starts[1:], None]
            cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
            rows.append(dict(zip(heading.split(), cells, strict=True)))
        found.append(rows)
    return found


def test_states_and_progress_agree_and_columns_are_in_line() -> None:
    shown = tables(lines(PICTURE), "NAMESPACE")
    assert len(shown) == 2
    assert tables(lines(PICTURE), "NODE")
    running, ended = shown
    assert {row["PHASE"] for row in running} >= {"Running", "Ready", "Pending"}
    jobs = [row for row in ended if row["KIND"] == "TrainingJob"]
    assert len(jobs) == 3
    assert {(row["PHASE"], row["PROGRESS"]) for row in jobs} == {("Succeeded", "100%")}


def test_commands_of_the_picture_exist(tmp_path: Path) -> None:
    typed = [line.removeprefix("$ ") for line in lines(PICTURE) if line.startswith("$ ")]
    assert len(typed) > 6
    for line in typed:
        (words,) = commands_of(line)
        assert faults(words, whole=True, folder=tmp_path) == [], line
    for name in re.findall(r"examples/[\w.-]+", " ".join(typed)):
        assert (ROOT / name).is_file()
