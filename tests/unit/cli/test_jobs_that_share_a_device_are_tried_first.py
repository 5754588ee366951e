# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``simulate --lanes`` says what becomes of jobs that share one device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ullage.cli.main import app
from ullage_simulate.lane_trace import MOST_STEPS, lane_jobs
from ullage_simulate.trace import JobTraceError

HEAD = "name,arrival_s,persistent_mib,ephemeral_mib,duration_s,step_s,duty\n"
NOTEBOOKS = "".join(f"notebook-{at},{at},1024,20000,60,1,0.1\n" for at in range(10))
WAYS = ["packing", "lanes FAIR", "lanes RR", "lanes PACK", "lanes FIFO", "lanes SRTF"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten notebooks that pause nine tenths of their time; the peaks of two fit side by side."""
    path = tmp_path / "notebooks.csv"
    path.write_text(HEAD + NOTEBOOKS, "utf-8")
    return path


def run(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["simulate", *words])
    return found.exit_code, found.stdout, " ".join(found.stderr.split())


def outcomes(*words: str) -> dict[str, dict[str, float]]:
    code, out, problems = run(*words, "--json", "-")
    assert code == 0, problems
    return {one["policy"]: one for one in json.loads(out)["outcomes"]}


def test_jobs_that_pause_end_sooner_in_lanes_than_packed(table: Path) -> None:
    found = outcomes("--lanes", str(table), "--memory", "48")
    assert list(found) == WAYS
    packed, fair = found["packing"], found["lanes FAIR"]
    assert packed["meanResidents"] <= 2
    assert fair["meanResidents"] > 3 * packed["meanResidents"]
    assert packed["meanCompletionS"] > 1.5 * fair["meanCompletionS"]
    assert fair["waitFraction"] > 0 == packed["waitFraction"]
    assert sum(bool(one["best"]) for one in found.values()) == 1


def test_busy_jobs_run_side_by_side_where_throughput_is_the_aim(tmp_path: Path) -> None:
    path = tmp_path / "busy.csv"
    path.write_text(HEAD + NOTEBOOKS.replace(",0.1\n", ",1\n"), "utf-8")
    words = ("--lanes", str(path), "--memory", "48", "--slowdown", "0")
    packed = outcomes(*words)["packing"]
    residents, throughput = (
        outcomes(*words, "--aim", aim)["lanes FIFO"] for aim in ("Residents", "Throughput")
    )
    assert residents["meanResidents"] > packed["meanResidents"]
    assert residents["endS"] > 1.1 * packed["endS"], "residents cost steps side by side"
    assert throughput["endS"] == pytest.approx(packed["endS"])


def test_a_table_is_for_people_and_names_what_never_fits(table: Path) -> None:
    with table.open("a", encoding="utf-8") as stream:
        stream.write("giant,0,40000,40000,60,1,1\n")
    code, out, _ = run("--lanes", str(table), "--memory", "48")
    assert code == 0
    assert "11 jobs on a device of 48 GiB" in out
    assert "lanes SRTF" in out
    assert "1 of the jobs never fit the device and are left out: giant" in " ".join(out.split())


def test_a_table_of_solo_runs_is_read_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "solo.csv"
    path.write_text(
        "workload,solo_duration_s,memory_mb,iterations\nvgg,100,4000,100\nvgg,100,4000,100\n",
        "utf-8",
    )
    jobs, notes = lane_jobs(path)
    assert [one.name for one in jobs] == ["vgg-0", "vgg-1"]
    assert (jobs[0].demand.persistent_mib, jobs[0].demand.ephemeral_mib) == (600, 3400)
    assert "15% of each" in notes[0]


def test_many_steps_are_played_as_fewer_of_the_same_length_in_all(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(HEAD + f"a,0,1,1,{4 * MOST_STEPS},1,1\nb,0,1,1,10,1,1\n", "utf-8")
    jobs, notes = lane_jobs(path)
    assert sum(one.steps for one in jobs) <= MOST_STEPS
    assert [one.steps * one.step_s for one in jobs] == [4 * MOST_STEPS, 10]
    assert notes == ("5 steps are played as one",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD, "no jobs"),
        (HEAD + "a,0,1,1,60,1,2\n", "line 2, column duty"),
        (HEAD + "a,-1,1,1,60,1,1\n", "line 2, column arrival_s"),
        (HEAD + "a,0,1.5,1,60,1,1\n", "line 2, column persistent_mib"),
        (HEAD + "a,0,1,nan,60,1,1\n", "line 2, column ephemeral_mib"),
        (HEAD + "a,0,1,1,0,1,1\n", "line 2, column duration_s"),
        (HEAD + "a,0,1,1,60,1,1\na,0,1,1,60,1,1\n", "line 3, column name"),
        ("when\n1\n", "column"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(JobTraceError, match=said):
        lane_jobs(path)


def test_options_that_make_no_sense_say_what_to_write(table: Path) -> None:
    code, _, problems = run("--lanes", str(table), "--aim", "Luck")
    assert code == 1
    assert "write one of Residents, Throughput, RulesAlone" in problems
    code, _, problems = run("--lanes", str(table), "--memory", "1")
    assert code == 1
    assert "no job fits a device of 1024 MiB" in problems


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


def test_pictures_show_residents_completions_means_and_waits(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = _Picture()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, picture)
    folder = tmp_path / "img"
    code, _, problems = run("--lanes", str(table), "--memory", "48", "--plot", str(folder))
    assert code == 0, problems
    saved = [words[0] for name, words in picture.calls if name == "savefig"]
    names = ("residents", "completions", "means", "waits", "lanes")
    assert saved == [folder / f"{name}.png" for name in names]
    curves = [words for name, words in picture.calls if name == "plot"]
    assert len(curves) == 2 * 2 * len(WAYS), "residents and completions, alone and together"
    assert all(len(words[0]) == len(words[1]) for words in curves)  # type: ignore[arg-type]
