# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``simulate --requests`` says which share and how many replicas keep an objective."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ullage.cli.main import app
from ullage_simulate.request_trace import arrivals
from ullage_simulate.trace import JobTraceError

HALF, WHOLE = "h100:50=400ms,p99=1200ms,price=4", "h100:100=250ms,p99=700ms,price=4"
SLO = "p99<=2000ms"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten minutes of eight requests a second."""
    times = np.cumsum(np.random.default_rng(1).exponential(1 / 8, 4800))
    path = tmp_path / "requests.csv"
    path.write_text("arrival_s\n" + "\n".join(f"{at:.4f}" for at in times) + "\n", "utf-8")
    return path


def run(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["simulate", *words])
    return found.exit_code, found.stdout, " ".join(found.stderr.split())


def test_the_cheapest_configuration_that_keeps_it_is_named(trace: Path) -> None:
    code, out, _ = run(
        *("--requests", str(trace), "--slo", SLO, "--json", "-"),
        *("--replica", HALF, "--replica", WHOLE),
    )
    assert code == 0
    found = json.loads(out)
    assert (found["requests"], found["percentile"], found["limitMs"]) == (4800, 99, 2000)
    lines = found["outcomes"]
    assert [(one["share"], one["scaled"]) for one in lines] == [
        *((50, False), (50, True)),
        *((100, False), (100, True)),
    ]
    keeps = [one for one in lines if one["attainment"] >= 0.99]
    best = [one for one in lines if one["best"]]
    assert best == [min(keeps, key=lambda one: one["dollars"])]
    fixed = lines[0]
    assert fixed["deviceHours"] == pytest.approx(fixed["mostReplicas"] * 600 / 3600 / 2, rel=0.05)
    # eight requests a second of 0.4 s keep 3.2 replicas busy
    assert 4 <= fixed["mostReplicas"] <= 6


def test_without_a_price_there_are_hours_and_no_dollars(tmp_path: Path) -> None:
    short = tmp_path / "requests.csv"
    short.write_text("arrival_s\n" + "\n".join(f"{at / 8}" for at in range(480)) + "\n", "utf-8")
    half = HALF.removesuffix(",price=4")
    code, out, _ = run("--requests", str(short), "--slo", SLO, "--replica", half, "--json", "-")
    assert code == 0
    lines = json.loads(out)["outcomes"]
    assert [one["dollars"] for one in lines] == [None, None]
    keeps = [one for one in lines if one["attainment"] >= 0.99]
    assert [one for one in lines if one["best"]] == [min(keeps, key=lambda one: one["deviceHours"])]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(trace: Path) -> None:
    words = ("--requests", str(trace), "--slo", SLO, "--replica", HALF, "--json", "-")
    assert run(*words)[1] == run(*words)[1] != run(*words, "--seed", "7")[1]


def test_a_table_is_for_people(trace: Path) -> None:
    code, out, _ = run("--requests", str(trace), "--slo", SLO, "--replica", HALF)
    assert code == 0
    assert "p99 within 2000 ms" in out
    assert "h100 50 % autoscaled" in out


def test_an_objective_that_nothing_keeps_is_told(trace: Path) -> None:
    code, out, _ = run("--requests", str(trace), "--slo", "p99<=500ms", "--replica", HALF)
    assert code == 0
    assert "no configuration keeps the objective" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--requests needs --slo"),
        (("--slo", SLO), "--requests needs --slo"),
        (("--slo", "99%", "--replica", HALF), "write a percentile"),
        (("--slo", "p50<=10ms", "--replica", HALF), "write a percentile"),
        (("--slo", "p99<=0ms", "--replica", HALF), "write a percentile"),
        (("--slo", SLO, "--replica", "h100=40ms"), "write ACCELERATOR:SHARE"),
        (("--slo", SLO, "--replica", "h100:101=40ms"), "write ACCELERATOR:SHARE"),
        (("--slo", SLO, "--replica", "h100:50=1..2ms"), "write ACCELERATOR:SHARE"),
        (("--slo", SLO, "--replica", "h100:50=40ms,p99=30ms"), "not above the p99"),
        (("--slo", SLO, "--replica", "h100:50=0ms"), "above 0"),
    ],
)
def test_what_makes_no_sense_says_what_to_write(
    trace: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, problems = run("--requests", str(trace), *words)
    assert code == 1
    assert said in problems


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("arrival_s\n1\nnan\n", "line 3, column arrival_s"),
        ("arrival_s\n1\n-4\n", "line 3, column arrival_s"),
        ("timestamp\n2026-01-31T12:00:00\nsoon\n", "line 3, column timestamp"),
        ("arrival_s\n1\n", "at least 2 requests"),
        ("when\n1\n2\n", "column arrival_s"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(JobTraceError, match=said):
        arrivals(path)


def test_instants_are_read_from_the_first_one_on(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("timestamp\n2026-01-31T12:00:02.5\n2026-01-31T12:00:00\n", "utf-8")
    assert arrivals(path).tolist() == [0.0, 2.5]


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


def test_pictures_show_load_replicas_latency_and_devices(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = _Picture()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, picture)
    folder = tmp_path / "img"
    code, _, problems = run(
        *("--requests", str(trace), "--slo", SLO, "--replica", HALF, "--plot", str(folder))
    )
    assert code == 0, problems
    saved = [words[0] for name, words in picture.calls if name == "savefig"]
    names = ("load", "replicas", "latency", "devices", "serving")
    assert saved == [folder / f"{name}.png" for name in names]
    curves = [words for name, words in picture.calls if name == "plot"]
    # load, two curves of replicas, two of latency and the limit: alone and in the overview
    assert len(curves) == 2 * (1 + 2 + 3)
    assert all(len(words[0]) == len(words[1]) for words in curves)  # type: ignore[arg-type]
