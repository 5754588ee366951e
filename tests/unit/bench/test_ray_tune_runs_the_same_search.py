# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ray Tune gets trials, epochs and parts of devices as our search; its library is a stand-in."""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import tuning_cluster, tuning_ray
from bench.tuning_cluster import by_ray, ray_figures_of
from bench.tuning_ray import SETTINGS, WHOLE, RaySearch, Setting, given, run, search_of, why_not
from bench.tuning_search import EPOCHS, PERCENT, TRIALS, Search, Way, search, terms
from demo.progress import Progress
from digits import data
from digits.network import Network
from digits.tune import Trial
from ullage.engines.tuning.algorithms import decider_of, parameters_of
from ullage.engines.tuning.rungs import SyncHalving

SCRIPT = Path(tuning_ray.__file__).with_name("tuning_raytune.py")
RAN = frozenset({(0, 60), (1, 60), (1, 180)})


def found(makespan_s: float, ran: frozenset[tuple[int, int]] = RAN) -> RaySearch:
    return RaySearch(makespan_s=makespan_s, ran=ran, resizes=1, widths=())


class TrialScheduler:
    """Decides as its stand-in is told."""

    def __init__(self, *words: object, **options: object) -> None:
        self.words, self.options = words, options
        self._trials_to_reallocate: dict[object, object] = {}
        self._s_max_1 = 3

    def _create_bracket(self, s: int) -> int:
        return s

    def on_trial_result(self, controller: object, trial: object, result: object) -> str:
        del controller, result
        if trial == "grows":
            self._trials_to_reallocate[trial] = "more"
        return "PAUSE"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The names that the script of Ray's process defines for a setting."""

    def loaded(setting: Setting = SETTINGS[0]) -> dict[str, Any]:
        ray, tune = types.ModuleType("ray"), types.ModuleType("ray.tune")
        schedulers = types.ModuleType("ray.tune.schedulers")
        resizing = types.ModuleType("ray.tune.schedulers.resource_changing_scheduler")
        ray.tune, tune.Trainable, tune.Callback = tune, object, object  # type: ignore[attr-defined]
        ray.get_gpu_ids = lambda: ["1"]  # type: ignore[attr-defined]
        names = ("HyperBandScheduler", "ResourceChangingScheduler")
        for name in names:
            setattr(schedulers, name, type(name, (TrialScheduler,), {}))
        resizing.DistributeResources = TrialScheduler  # type: ignore[attr-defined]
        for module in (ray, tune, schedulers, resizing):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        told = given(terms(), setting) | {
            "folder": str(tmp_path),
            "groups": [],
            "hook": "/bin/true",
        }
        monkeypatch.setenv("BENCH_SEARCH", json.dumps(told))
        return runpy.run_path(str(SCRIPT))

    return loaded


def training(script: Mapping[str, Any], trial: int, percent: int) -> Any:
    made = script["Training"]()
    made.trial_resources = types.SimpleNamespace(required_resources={"GPU": percent / 100})
    made.config = {"trial": trial}
    made.setup(made.config)
    return made


def test_ray_gets_the_parameters_that_the_operator_draws() -> None:
    told, searched = given(terms(), WHOLE), terms()
    points: Any = told["points"]
    assert len(points) == TRIALS == searched.trials
    for trial, point in enumerate(points):
        drawn = parameters_of(searched, trial)
        assert drawn is not None
        assert (float(point["rate"]), int(point["hidden"])) == (
            float(drawn["rate"]),
            int(drawn["hidden"]),
        )
    assert len({point["rate"] for point in points}) == TRIALS


def test_all_ways_search_the_same() -> None:
    parts = ("algorithm", "objective", "searchSpace", "trials")
    specs = [search(way, "x", "default")["spec"] for way in Way]
    assert all(spec[part] == specs[0][part] for spec in specs for part in parts)


def test_ray_compares_at_the_rungs_of_the_engine() -> None:
    told, decider = given(terms(), WHOLE), decider_of(terms())
    assert isinstance(decider, SyncHalving)
    assert told["rungs"] == decider.epochs
    assert decider.epochs[-1] == EPOCHS
    report_epochs = told["report_epochs"]
    assert isinstance(report_epochs, int)
    assert all(epoch % report_epochs == 0 for epoch in decider.epochs)


def test_longer_trials_are_the_same_trials() -> None:
    short, longer = given(terms(), WHOLE), given(terms(10 * EPOCHS), WHOLE)
    assert longer["points"] == short["points"]
    assert longer["rungs"] == (600, 1800, 5400)


@pytest.mark.parametrize("other", [{"trials": 10}, {"max_epochs": 500}, {"min_epochs": 20}])
def test_a_search_that_rays_bracket_cannot_run_is_refused(other: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="bracket does not have"):
        given(replace(terms(), **other), WHOLE)  # type: ignore[arg-type]


def test_settings_end_at_one_device_and_begin_at_our_smallest_share() -> None:
    assert min(one.percent for one in SETTINGS) == PERCENT
    for one in SETTINGS:
        assert one.step_percent
        assert (100 - one.percent) % one.step_percent == 0
    assert WHOLE not in SETTINGS


def test_trials_grow_by_steps_to_one_device(script: Callable[..., dict[str, Any]]) -> None:
    made = script(SETTINGS[0])["scheduler"]()
    halving, grow = made.words
    assert halving.options["max_t"] == EPOCHS // terms().min_epochs
    assert halving._create_bracket(0) == halving._create_bracket(1) == 2
    assert grow.options["increase_by"] == {"GPU": 0.25}
    assert 25 + 25 * grow.options["increase_by_times"] == 100
    assert type(script(WHOLE)["scheduler"]()).__name__ == "OneBracket"


def test_a_trial_that_is_stopped_to_grow_goes_on(script: Callable[..., dict[str, Any]]) -> None:
    made = script(SETTINGS[0])["scheduler"]()
    bracket = types.SimpleNamespace(trials_to_unpause=set())
    made._base_scheduler = types.SimpleNamespace(
        _trial_info={"grows": (bracket, 0), "waits": (bracket, 0)}
    )
    assert made.on_trial_result(None, "waits", {}) == "PAUSE"
    assert bracket.trials_to_unpause == set()
    assert made.on_trial_result(None, "grows", {}) == "PAUSE"
    assert bracket.trials_to_unpause == {"grows"}


def test_a_trial_that_ray_resized_has_the_values_of_one_that_was_not(
    script: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    loaded = script()
    first = training(loaded, 3, 25)
    first.step()
    first.save_checkpoint(str(tmp_path))
    second = training(loaded, 3, 100)
    second.load_checkpoint(str(tmp_path))
    said = second.step()
    point = parameters_of(terms(), 3)
    assert point is not None
    network, digits = Network(int(point["hidden"])), data.load()
    alone = Trial.fresh(network)
    for _ in range(said["epoch"]):
        alone.train(network, digits, float(point["rate"]))
    assert said["epoch"] == 2 * terms().min_epochs // tuning_ray.REPORTS
    assert said["accuracy"] == alone.accuracy
    assert said["budget"] == pytest.approx(said["epoch"] / terms().min_epochs)


def test_of_equal_trials_the_earlier_one_is_better(
    script: Callable[..., dict[str, Any]],
) -> None:
    loaded = script()
    early, late = training(loaded, 0, 25), training(loaded, 1, 25)
    late._network, late._rate = early._network, early._rate
    late._trial = Trial.fresh(early._network)
    first, second = early.step(), late.step()
    assert first["accuracy"] == second["accuracy"]
    assert first["score"] > second["score"]
    assert first["accuracy"] - second["score"] < 1 / 360, "less than one more image read right"


def test_each_trial_gets_its_part_of_the_core_that_ray_named(
    script: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    loaded = script()
    seen, hook, group = tmp_path / "seen", tmp_path / "hook", tmp_path / "cpu" / "trial-4"
    hook.write_text(f'#!/bin/sh\nprintf "%s " "$@" >{seen}\n/bin/cat >>{seen}\n', "utf-8")
    hook.chmod(0o755)
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("25000", "utf-8")
    loaded["GIVEN"] |= {"groups": [str(tmp_path / "cpu")], "hook": str(hook)}
    training(loaded, 4, 75)
    words, _, state = seen.read_text("utf-8").partition("{")
    assert words.split() == ["slot-4", "75000", "1"]
    assert json.loads("{" + state)["pid"] == os.getpid()
    assert (group / "cgroup.procs").read_text("utf-8") == str(os.getpid())
    assert (group / "cpu.cfs_quota_us").read_text("utf-8") == "-1", "the hook only lowers"


def test_a_makespan_goes_from_the_first_start_to_the_last_result() -> None:
    said = {
        "starts": [[10.0, 0, 25], [11.0, 1, 25], [15.0, 0, 25], [18.0, 0, 75]],
        "results": [
            [12.0, 1, 60, 0.5],
            [14.0, 0, 60, 0.6],
            [16.0, 0, 70, 0.6],
            [30.5, 0, 180, 0.9],
        ],
    }
    assert search_of(said, (60, 180, 540)) == RaySearch(
        makespan_s=20.5,
        ran=frozenset({(0, 60), (1, 60), (0, 180)}),
        resizes=1,
        widths=((0.0, 0, 25), (1.0, 1, 25), (5.0, 0, 25), (8.0, 0, 75)),
    )


def test_the_best_setting_that_resizes_counts() -> None:
    ours = Search(makespan_s=50.0, ran=RAN, resizes=0)
    rays = {SETTINGS[0]: found(80.0), SETTINGS[1]: found(70.0), WHOLE: found(55.0)}
    figures = ray_figures_of(rays, ours)
    assert figures["real_vs_ray"] == 1.4
    assert [figures[f"real_vs_ray_{part}pct"] for part in (25, 50, 100)] == [1.6, 1.4, 1.1]
    assert figures["real_ray_promotions_equal"] == 1


def test_other_promotions_of_one_setting_are_seen() -> None:
    ours = Search(makespan_s=50.0, ran=RAN, resizes=0)
    rays = {one: found(80.0) for one in (*SETTINGS, WHOLE)}
    rays[SETTINGS[-1]] = found(80.0, RAN | {(0, 180)})
    assert ray_figures_of(rays, ours)["real_ray_promotions_equal"] == 0


def test_runs_of_different_times_are_not_compared() -> None:
    alone = ray_figures_of({one: found(80.0) for one in (*SETTINGS, WHOLE)}, None)
    assert alone["real_vs_ray"] is None
    assert alone["real_ray_25pct_makespan_s"] == 80.0
    without = ray_figures_of({}, Search(makespan_s=50.0, ran=RAN, resizes=0))
    assert without["real_vs_ray"] is None


def test_an_absent_ray_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tuning_ray, "PROGRAM", tmp_path / "raytune" / "bin" / "python")
    assert why_not() == f"Ray Tune is not installed in {tmp_path / 'raytune'}"


@pytest.mark.parametrize("ends", [0, 3])
def test_rays_process_is_told_the_search_and_its_failure_is_shown(
    ends: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = '{"starts": [[1.0, 0, 25]], "results": [[3.0, 0, 60, 0.5]]}'
    program = tmp_path / "python"
    lines = [
        f"#!{sys.executable}",
        "import os, sys",
        f"open({str(tmp_path / 'told')!r}, 'w').write(os.environ['BENCH_SEARCH'])",
        f"print('a line of Ray'); print({said!r})",
        f"print('no device', file=sys.stderr); sys.exit({ends})",
    ]
    program.write_text("\n".join(lines), "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(tuning_ray, "_limits", lambda _: nullcontext({"hook": "/hook"}))
    monkeypatch.setattr(tuning_ray.report, "FOLDER", tmp_path)
    if ends:
        with pytest.raises(RuntimeError, match=r"ended with 3.*no device"):
            run(terms(), WHOLE, program)
    else:
        assert run(terms(), WHOLE, program).makespan_s == 2.0
    told = json.loads((tmp_path / "told").read_text("utf-8"))
    assert (told["percent"], told["step_percent"], told["hook"]) == (100, 0, "/hook")


def test_a_ray_that_fails_fails_the_run_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object) -> RaySearch:
        raise RuntimeError("Ray Tune ended with 1")

    monkeypatch.setattr(tuning_cluster.tuning_ray, "run", failing)
    monkeypatch.setattr(tuning_cluster.tuning_ray, "why_not", lambda: "")
    monkeypatch.setattr(tuning_cluster.report, "write", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["tuning_cluster", "--only-ray"])
    assert by_ray(Progress(), terms()) == {}
    assert tuning_cluster.main() == 1
    assert "Ray Tune ended with 1" in capsys.readouterr().err
