# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ray Tune on the search of bench.tuning_search: how it is set, started and judged.

The trials are the program of the TuningJob with the parameters that the operator draws. Each gets
its part of a core by the hook that limits containers. Ray has several settings: its best counts.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import report
from bench.guard_node import Groups, what_is_missing
from bench.tuning_search import DEVICES, Search
from ullage.engines.tuning.algorithms import SearchTerms, parameters_of, trials_of
from ullage.engines.tuning.rungs import budgets
from ullage.engines.tuning.search_space import as_text
from ullage_node.devices.cgroups import PERIOD_US
from ullage_node.devices.emulated_hook import HookScript
from ullage_node.model.devices import BackendPaths

PROGRAM: Final = report.ROOT / "build" / "peers" / "raytune" / "bin" / "python"
LIMIT_S: Final = 1_800.0
LEAVES_S: Final = 20.0
REPORTS: Final = 6
"""In the first rung. Ray may resize a trial when it reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Percent of a device that a trial has at least, and by how much it may grow; 0: not at all."""

    percent: int
    step_percent: int = 0

    @property
    def name(self) -> str:
        """As figures call it."""
        return f"ray_{self.percent}pct"


SETTINGS: Final = (
    Setting(percent=25, step_percent=25),
    Setting(percent=50, step_percent=50),
)
"""Both keep trials on one device. Other steps leave parts of devices that no trial fits into."""
WHOLE: Final = Setting(percent=100)
"""Ray without resizes: a trial cannot use more than one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySearch(Search):
    """A search by Ray; ``widths`` are seconds since the first trial, trial and percent."""

    widths: tuple[tuple[float, int, int], ...]


def points(terms: SearchTerms) -> list[dict[str, str]]:
    """Parameters of all trials, as the operator gives them to its trials.

    Raises:
        ValueError: they do not follow from the terms alone.
    """
    found = []
    for trial in range(trials_of(terms)):
        point = parameters_of(terms, trial)
        if point is None:
            raise ValueError(f"{terms.algorithm} draws parameters from results")
        found.append({name: as_text(value) for name, value in point.items()})
    return found


def rungs(terms: SearchTerms) -> tuple[int, ...]:
    """Last epochs of the rungs.

    Raises:
        ValueError: Ray's one bracket of the most trials is another search.
    """
    found = budgets(terms.min_epochs, terms.max_epochs, terms.eta)
    whole = found[0] * terms.eta ** (len(found) - 1) == found[-1]
    if not whole or trials_of(terms) != terms.eta ** (len(found) - 1) or found[0] % REPORTS:
        raise ValueError(f"Ray's bracket does not have {trials_of(terms)} trials and rungs {found}")
    return found


def given(terms: SearchTerms, setting: Setting) -> dict[str, object]:
    """What Ray's process is told of the search."""
    until = rungs(terms)
    return {
        "points": points(terms),
        "rungs": until,
        "eta": terms.eta,
        "report_epochs": until[0] // REPORTS,
        "percent": setting.percent,
        "step_percent": setting.step_percent,
        "cores": list(range(DEVICES)),
        "quota_us_per_percent": PERIOD_US // 100,
    }


def search_of(said: Mapping[str, Sequence[Sequence[float]]], until: Sequence[int]) -> RaySearch:
    """What a search came to, from the notes of Ray's process.

    Args:
        said: ``starts`` (second, trial, percent) and ``results`` (second, trial, epoch, accuracy),
            both in their order.
        until: Last epochs of the rungs.
    """
    began = said["starts"][0][0]
    widths = tuple((at - began, int(trial), int(width)) for at, trial, width in said["starts"])
    last: dict[int, int] = {}
    resizes = 0
    for _, trial, width in widths:
        resizes += last.get(trial, width) != width
        last[trial] = width
    return RaySearch(
        makespan_s=said["results"][-1][0] - began,
        ran=frozenset((int(r[1]), int(r[2])) for r in said["results"] if int(r[2]) in until),
        resizes=resizes,
        widths=widths,
    )


def why_not() -> str:
    """Why Ray Tune cannot run here; empty where it can."""
    if not os.access(PROGRAM, os.X_OK):
        return f"Ray Tune is not installed in {PROGRAM.parent.parent}"
    return what_is_missing()


def run(terms: SearchTerms, setting: Setting, program: Path = PROGRAM) -> RaySearch:
    """Search once by Ray Tune.

    Args:
        terms: What is searched.
        setting: Of Ray.
        program: The interpreter of its environment.

    Raises:
        RuntimeError: it fails or does not end; the text has the end of what it printed.
    """
    told = given(terms, setting)
    with _limits(trials_of(terms)) as limits:
        said = _said(program, told | limits)
    return search_of(said, rungs(terms))


@contextmanager
def _limits(trials: int) -> Iterator[dict[str, object]]:
    """Control groups, the hook, and a folder for Ray; all are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bench-ray-"))
    groups = Groups(outweighs=False)
    try:
        hook = HookScript(paths=BackendPaths(state_dir=folder))
        hook.install()
        for trial in range(trials):
            groups.make(f"trial-{trial}")
        yield {
            "folder": str(folder),
            "groups": [str(one) for one in groups.folders],
            "hook": str(hook.path),
        }
    finally:
        groups.remove()
        shutil.rmtree(folder)


def _said(program: Path, told: Mapping[str, object]) -> dict[str, list[list[float]]]:
    folders = [str(report.ROOT / name) for name in ("operator", "runtime", "examples")]
    environment = {
        **os.environ,
        "BENCH_SEARCH": json.dumps(told),
        "PYTHONPATH": os.pathsep.join(folders),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    }
    script = str(Path(__file__).with_name("tuning_raytune.py"))
    log = report.FOLDER / "tuning-ray.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as errors:
        started = subprocess.Popen(
            [str(program), "-P", script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        said = _last_line(started)
    if started.returncode != 0:
        words = " | ".join(log.read_text("utf-8").splitlines()[-5:])
        raise RuntimeError(f"Ray Tune ended with {started.returncode}, see {log}: {words}")
    found: dict[str, list[list[float]]] = json.loads(said)
    return found


def _last_line(started: subprocess.Popen[str]) -> str:
    """Wait for the end, and end what does not end itself."""
    try:
        printed, _ = started.communicate(timeout=LIMIT_S)
    except BaseException:
        started.send_signal(signal.SIGTERM)
        try:
            started.communicate(timeout=LEAVES_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()
        raise
    return printed.strip().rpartition("\n")[2]
