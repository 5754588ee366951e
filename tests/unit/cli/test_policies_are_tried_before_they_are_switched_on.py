# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage simulate``: table, JSON, pictures, and faults in words."""

from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ullage.cli import comparing
from ullage.cli.main import app
from ullage_simulate.progress import Follow

RUNNER = CliRunner()
SMALL = ("simulate", "--trace", "gavel", "--jobs", "6", "--cluster", "v100=2,k80=4")


def test_the_baselines_always_stand_beside_the_policy() -> None:
    found = RUNNER.invoke(app, [*SMALL, "--policy", "MaxMinFairness"], env={"COLUMNS": "100"})
    assert found.exit_code == 0, found.output
    for name in ("fifo", "isolated", "agnostic-las", "las"):
        assert f"\n {name} " in found.output.replace("\n  ", "\n ")
    assert "6 jobs on 2 v100, 4 k80" in found.output


def test_scripts_read_json_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    words = [*SMALL, "--failures", "20", "--checkpoint-every", "600", "--seed", "3", "--each"]
    bodies = []
    for name in ("a.json", "b.json"):
        found = RUNNER.invoke(app, [*words, "--json", str(tmp_path / name)])
        assert found.exit_code == 0, found.output
        bodies.append(json.loads((tmp_path / name).read_text(encoding="utf-8")))
    assert bodies[0] == bodies[1]
    las = bodies[0]["policies"]["las"]
    assert las["jobs"] == len(las["each"]) == 6
    assert las["mean_jct_h"] == pytest.approx(sum(job["jct_s"] for job in las["each"]) / 6 / 3600)
    assert las["dollars"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "magic"), "no policy 'magic'"),
        (("--cluster", "h100=8"), "nothing is known of speeds on h100"),
        (("--trace", "nowhere.csv"), "nowhere.csv"),
        (("--mode", "slow"), "there are fast and decide"),
        (("--mode", "decide", "--policy", "water-filling"), "no such objective"),
        (("--snapshot", "nowhere.json"), "nowhere.json"),
        (("--policy", "min-cost", "--price", "v100=1"), "no price above 0 for k80"),
    ],
)
def test_what_cannot_be_is_said_in_words(words: tuple[str, ...], said: str) -> None:
    found = RUNNER.invoke(app, [*SMALL, *words], env={"COLUMNS": "400"})
    assert found.exit_code == 1
    assert said in " ".join(found.output.split())
    assert "Traceback" not in found.output


QUOTA = """
apiVersion: ullage.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: default}
spec:
  tenants:
    - {name: research, namespaces: [vision], quota: [{accelerator: v100, nominalQuota: 100}]}
"""


def test_a_quota_is_refused_where_it_would_not_count(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(QUOTA, encoding="utf-8")
    found = RUNNER.invoke(app, [*SMALL, "--policy-file", str(path)], env={"COLUMNS": "400"})
    assert found.exit_code == 1
    assert "research has a quota" in found.output
    assert "--mode decide" in " ".join(found.output.split())


class _Recorder:
    """Stands for any object of matplotlib; keeps what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> object:
        def call(*words: object, **_: object) -> _Recorder:
            self.calls.append((name, words))
            return self

        return call


class _Plotter(_Recorder):
    def subplots(self, rows: int, columns: int, **_: object) -> tuple[_Recorder, object]:
        return self, self if rows == columns == 1 else ((self, self), (self, self))


def test_pictures_show_every_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Plotter()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, recorder)
    found = RUNNER.invoke(app, [*SMALL, "--plot", str(tmp_path / "img")])
    assert found.exit_code == 0, found.output
    saved = [words[0] for name, words in recorder.calls if name == "savefig"]
    assert saved == [
        tmp_path / "img" / f"{name}.png"
        for name in ("utilisation", "completion", "fairness", "cost", "overview")
    ]
    curves = [words for name, words in recorder.calls if name == "plot"]
    # Three curves for each of four policies and the line of fairness, alone and in the overview.
    assert len(curves) == 2 * (3 * 4 + 1)
    bars = [words for name, words in recorder.calls if name == "barh"]
    assert bars[0][0] == ["las", "agnostic-las", "isolated", "fifo"]


def test_without_matplotlib_one_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    found = RUNNER.invoke(app, [*SMALL, "--plot", str(tmp_path / "img")], env={"COLUMNS": "300"})
    assert found.exit_code == 1
    assert "ullage[simulate]" in found.output
    assert not (tmp_path / "img").exists()


SPOT = ("simulate", "--spot", "--jobs", "2", "--work", "6", "--deadline", "9", "--replicas", "2")


def test_ways_to_buy_stand_side_by_side() -> None:
    found = RUNNER.invoke(app, [*SPOT, "--select", "pool=zone-f"], env={"COLUMNS": "120"})
    assert found.exit_code == 0, found.output
    assert "2 instances, 6 h of work, deadline 9 h, 2 starts" in found.output
    rows = [line.split() for line in found.output.splitlines()]
    (alone,) = [row for row in rows if row[:1] == ["on-demand"]]
    # 2 x 3.06 $ for 6.2 h
    assert alone[1:4] == ["38", "0%", "6.32"]
    assert {"greedy", "uniform-progress", "cost-per-work"} <= {row[0] for row in rows if row}
    assert "note: pools give instances in zone-f" in found.output


def test_pictures_show_every_way_to_buy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Plotter()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, recorder)
    words = [*SPOT, "--plot", str(tmp_path), "--json", str(tmp_path / "spot.json"), "--each"]
    found = RUNNER.invoke(app, words)
    assert found.exit_code == 0, found.output
    saved = [words[0] for name, words in recorder.calls if name == "savefig"]
    assert saved == [tmp_path / f"{name}.png" for name in ("cost", "ends", "line", "pools", "spot")]
    # six pools, and what each of four policies held on spot and on-demand, twice
    assert sum(name == "broken_barh" for name, _ in recorder.calls) == 2 * (6 + 2 * 4)
    body = json.loads((tmp_path / "spot.json").read_text(encoding="utf-8"))
    assert len(body["policies"]["uniform-progress"]["each"]) == 2


def test_a_deadline_that_cannot_be_kept_is_refused_in_words() -> None:
    found = RUNNER.invoke(app, [*SPOT[:-6], "--deadline", "48"], env={"COLUMNS": "400"})
    assert found.exit_code == 1
    assert "too early" in " ".join(found.output.split())


def test_progress_is_told_in_a_pipe_from_the_first_moment() -> None:
    done = RUNNER.invoke(app, [*SMALL, "--policy", "las", "--against", "none"])
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert lines[0] == "reading: begun, 1 to do"
    assert any(line.endswith("6 of 6") for line in lines), lines


def test_a_long_tenth_is_told_of_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 12.0, 13.0])
    monkeypatch.setattr(comparing, "monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), width=80)

    def compare(follow: Follow) -> None:
        tell = follow("las", 1000)
        for done in (1, 2, 3):
            tell(done)

    comparing.followed(compare, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == ["las: begun, 1,000 to do", "las: 2 of 1,000"]


def test_terminal_draws_bars_and_a_file_gets_all_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "--policy", "las", "--against", "none", "--plot"]
    drawn = RUNNER.invoke(app, [*words, "terminal"])
    assert "█" in drawn.stdout
    recorder = _Plotter()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, recorder)
    told = RUNNER.invoke(app, [*words, str(tmp_path / "new" / "one.png")], env={"COLUMNS": "300"})
    assert told.exit_code == 0, told.output
    assert [line for line in told.stdout.splitlines() if line.startswith("wrote")] == [
        f"wrote {tmp_path / 'new' / 'one.png'}"
    ]
