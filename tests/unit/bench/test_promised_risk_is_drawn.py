# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The picture of promised and observed risk shows what was admitted, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.admission import promised
from bench.admission_picture import Point, main, points_of
from bench.live_tally import Tally


def tally(admitted: int, violations: int) -> Tally:
    found = Tally()
    chosen = [(True, number < violations) for number in range(admitted)]
    found.add(range(admitted + 5), [*chosen, *([(False, False)] * 5)])
    return found


def figures() -> dict[str, float]:
    told = promised("v100_classes_160", 0.1, tally(100, 8)) | promised(
        "v100_classes_160", 0.05, tally(50, 1)
    )
    return {**told, **promised("k80_classes_160", 0.05, tally(0, 0)), "splits": 7}


def test_points_are_those_that_admitted_anything_by_rising_budget() -> None:
    (points,) = points_of(figures()).values()
    assert [(one.promised, one.observed) for one in points] == [(0.05, 0.02), (0.1, 0.08)]
    assert all(one.observed < one.upper < 0.2 for one in points)


def test_the_picture_has_a_point_for_each_above_the_line_where_more_broke(tmp_path: Path) -> None:
    told = figures() | promised("p100_classes_64", 0.1, tally(10, 9))
    source, picture = tmp_path / "admission.json", tmp_path / "risk.svg"
    source.write_text(json.dumps({"figures": told}), encoding="utf-8")
    assert main([str(picture), "--figures", str(source)]) == 0
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    texts = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("7 random splits" in text for text in texts)
    assert not any("K80" in text for text in texts)
    heights = {float(one.attrib["cy"]) for one in root.iter("{http://www.w3.org/2000/svg}circle")}
    assert min(heights) == 20  # more than the axis shows lies on its upper end
    assert sum("observed" in text for text in texts) == 3


def test_without_figures_it_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "risk.svg"), "--figures", str(tmp_path / "none.json")])
    assert "make bench-admission" in capsys.readouterr().err


def test_a_point_says_all_three() -> None:
    told = points_of(promised("v100_classes_4", 0.2, tally(20, 2)))
    assert told["v100_classes_4"][0].promised == 0.2
    assert isinstance(told["v100_classes_4"][0], Point)
