# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``simulate --tuning`` says how soon trials end, by how wide they run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ullage.cli.main import app
from ullage.engines.tuning.speed_curves import Widths
from ullage_simulate.trace import JobTraceError
from ullage_simulate.tuning import in_use, labels, read_trials

WIDTHS = Widths(per_device=4, devices=4)
TABLE = """name,work_s,arrival_s,checkpoint,memory_percent,restart_s,speed_1/4,speed_2
wide,4000,0,true,20,10,0.5,1.9
narrow,400,5,false,60,,,
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "trials.csv"
    path.write_text(TABLE, "utf-8")
    return path


def run(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["simulate", *words])
    return found.exit_code, found.stdout, " ".join(found.stderr.split())


def test_the_planner_is_set_beside_the_baselines() -> None:
    code, out, _ = run("--tuning", "synthetic", "--jobs", "27", "--seed", "3", "--json", "-")
    assert code == 0
    found = json.loads(out)
    assert (found["trials"], found["devices"]) == (27, 8)
    ends = {one["planner"]: one["makespanSeconds"] for one in found["outcomes"]}
    assert list(ends) == ["fifo", "longest", "static", "planned"]
    assert ends["planned"] < ends["longest"] <= ends["fifo"]
    assert found["lowerBoundSeconds"] <= found["fluidBoundSeconds"] <= ends["planned"]
    for one in found["outcomes"]:
        assert max(trial["endSeconds"] for trial in one["trials"]) == one["makespanSeconds"]
        assert 0 < one["useful"] <= 1


def test_the_same_seed_gives_the_same_figures() -> None:
    words = ("--tuning", "synthetic", "--jobs", "9", "--json", "-")
    assert run(*words)[1] == run(*words)[1] != run(*words, "--seed", "7")[1]


def test_the_pool_and_its_widths_are_given() -> None:
    words = ("--tuning", "synthetic", "--jobs", "2", "--json", "-")
    narrow = json.loads(run(*words, "--devices", "2", "--max-devices", "1")[1])
    wide = json.loads(run(*words, "--devices", "8", "--max-devices", "4")[1])
    assert narrow["devices"] == 2
    assert wide["outcomes"][-1]["makespanSeconds"] < narrow["outcomes"][-1]["makespanSeconds"]


def test_a_table_is_for_people(table: Path) -> None:
    code, out, _ = run("--tuning", str(table), "--devices", "2")
    assert code == 0
    assert "2 trials on 2 devices" in " ".join(out.split())
    assert "planned" in out


def test_a_line_says_what_is_known_of_a_trial(table: Path) -> None:
    (wide, narrow), names = read_trials(table, WIDTHS, 30.0)
    assert names == ("wide", "narrow")
    assert (wide.resize_cost_s, narrow.resize_cost_s) == (10.0, 30.0)
    assert (wide.checkpoints, narrow.checkpoints) == (True, False)
    assert (wide.memory_part, narrow.memory_part) == (0.2, 0.6)
    assert narrow.arrival_s == 5.0
    speeds = dict(zip(labels(WIDTHS), wide.curve.speeds, strict=True))
    assert (speeds["1/4"], speeds["2"]) == pytest.approx((0.5, 1.9))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("work_s\n1\nnan\n", "line 3, column work_s"),
        ("work_s\n0\n", "line 2, column work_s"),
        ("work_s\n-1\n", "line 2, column work_s"),
        ("work_s,memory_percent\n1,101\n", "column memory_percent"),
        ("work_s,checkpoint\n1,maybe\n", "column checkpoint"),
        ("work_s,speed_2\n1,fast\n", "column speed_2"),
        ("work_s,speed_2\n1,0\n", "column speed_2"),
        ("hours\n1\n", "column work_s"),
        ("work_s\n", "no trials|empty|no lines"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "trials.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(JobTraceError, match=said):
        read_trials(path, WIDTHS, 0.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--min-share", "0.25"), "write a unit share"),
        (("--min-share", "1/99"), "trials share a device"),
        (("--min-share", "2/3"), "write a unit share"),
        (("--jobs", "10001"), "at most 10,000"),
        (("--tuning", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_what_makes_no_sense_says_what_to_write(words: tuple[str, ...], said: str) -> None:
    code, _, problems = run("--tuning", "synthetic", *words)
    assert code == 1
    assert said in problems


def test_devices_in_use_are_counted_over_time(table: Path) -> None:
    from ullage.engines.tuning.baselines import first_come
    from ullage.engines.tuning.records import PlanRules
    from ullage.engines.tuning.simulator import play
    from ullage_simulate.tuning import pool

    facts, _ = read_trials(table, WIDTHS, 0.0)
    played = play(facts, first_come, PlanRules(widths=WIDTHS), pool(2))
    hours, held = in_use(played, WIDTHS.parts)
    assert hours == pytest.approx([0, 5 / 3600, 405 / 3600, 4000 / 3600])
    assert held == pytest.approx([1, 2, 1, 0])


class _Picture:
    """Stands for any object of matplotlib; keeps what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> object:
        def call(*words: object, **_: object) -> object:
            self.calls.append((name, words))
            if name != "subplots":
                return self
            return (self, self if words == (1, 1) else ((self, self), (self, self)))

        return call


def test_pictures_show_widths_use_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = _Picture()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, picture)
    folder = tmp_path / "img"
    code, _, problems = run("--tuning", "synthetic", "--jobs", "9", "--plot", str(folder))
    assert code == 0, problems
    saved = [words[0] for name, words in picture.calls if name == "savefig"]
    names = ("widths", "in-use", "ends", "makespan", "tuning")
    assert saved == [folder / f"{name}.png" for name in names]
    bars = [words for name, words in picture.calls if name == "broken_barh"]
    assert len(bars) >= 2 * 9
    assert {words[1][0] for words in bars} == set(range(9))  # type: ignore[index]
