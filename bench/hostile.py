# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nothing that a tenant writes stops, slows or misleads others; faults cost no crash loop.

Five steps: random raw objects against every reader (``fuzz``), others beside eight tenants who ask
for as much as a spec can say (``tenants``), hostile objects of two tenants on the local cluster
while a third one's jobs start (``objects``), restarts of its API server (``restarts``), and hours
of edits and faults (``soak``). ``python -m bench.hostile``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.api_client import ApiClient, NotAnswered
from bench.faults_inject import Faults
from bench.hostile_objects import VICTIM, Fate
from bench.hostile_restarts import fail_over, restart_and_schedule
from bench.hostile_stage import DEVICES, Health, NotPlayed, Outcome, Restarts, Stage, ratio
from bench.hostile_tenants import LATER, tenants
from bench.local import installed
from bench.progress import Progress
from bench.report import FOLDER, ROOT, Bars, Figure, Row, judge, write
from demo.cluster import LocalCluster

Json = dict[str, Any]
Figures = dict[str, Figure]
Said = Callable[[str], None]
"""Takes lines for the reader."""
STEPS: Final = ("fuzz", "tenants", "objects", "restarts", "soak")
ON_CLUSTER: Final = frozenset({"objects", "restarts"})
QUIET_FIRST: Final = 0.5
"""Part of the quiet jobs that run before the hostile objects come; the rest runs when they went."""

BARS: Final[Bars] = {
    "escapes": lambda count: count == 0,
    "fuzzed": lambda count: count >= 200_000,
    "tenant_ratio_8": lambda ratio: ratio <= LATER,
    "tenants_later": lambda count: count == 0,
    "innocent_nodes_aside": lambda count: count == 0,
    "hostile_ratio": lambda ratio: ratio <= 1.2,
    "restarts": lambda count: count == 0,
    "unexpected_outcomes": lambda count: count == 0,
    "unhealthy_samples": lambda count: count == 0,
    "resident_untouched": lambda kept: kept == 1,
    "api_restart_back_s_max": lambda seconds: seconds <= 15,
    "fail_over_s": lambda seconds: seconds <= 15,
    "soak_growth": lambda part: part <= 0.05,
}
LIMITS: Final = {
    "escapes": "0",
    "fuzzed": ">= 200000",
    "tenant_ratio_8": f"<= {LATER}",
    "tenants_later": "0",
    "innocent_nodes_aside": "0",
    "hostile_ratio": "<= 1.2",
    "restarts": "0",
    "unexpected_outcomes": "0",
    "unhealthy_samples": "0",
    "resident_untouched": "1",
    "api_restart_back_s_max": "<= 15",
    "fail_over_s": "<= 15",
    "soak_growth": "<= 0.05",
}
OF_STEP: Final = {
    "fuzz": ("fuzzed", "escapes"),
    "tenants": ("tenant_ratio_8", "tenants_later", "innocent_nodes_aside"),
    "objects": (
        "hostile_ratio",
        "restarts",
        "unexpected_outcomes",
        "unhealthy_samples",
        "resident_untouched",
    ),
    "restarts": ("restarts", "api_restart_back_s_max", "fail_over_s"),
    "soak": ("soak_growth",),
}


# -- hostile objects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What was seen of the third namespace's jobs, of the hostile objects, and of ours."""

    quiet_s: Sequence[float]
    """To Running without the hostile objects, before and after them."""
    loud_s: Sequence[float]
    """To Running beside them."""
    outcomes: Sequence[Outcome]
    health: Health
    operator_restarts: int
    agent_restarts: int
    untouched: bool
    """Whether the resident job kept its pods and slices."""


def objects_beside_work(stage: Stage, jobs: int, said: Said) -> Beside:
    """Time a third namespace's jobs without the hostile objects, beside them, and without again.

    Args:
        stage: The namespaces, open.
        jobs: Of each of the two runs that are compared.
        said: Takes lines for the reader.

    Raises:
        NotPlayed: a job did not come to run.
    """
    first = max(1, round(jobs * QUIET_FIRST))
    before, resident = stage.restarts(), stage.resident()
    with stage.watched_health() as health:
        stage.times_to_running("warm", 1)
        quiet = stage.times_to_running("quiet", first)
        said(f"quiet: {_spread(quiet)} s to Running")
        objects = stage.objects()
        answers = stage.submit(objects)
        accepted = sum(answer.accepted for answer in answers.values())
        said(f"{len(objects)} hostile objects sent, {accepted} of them accepted")
        loud = stage.times_to_running("loud", jobs)
        said(f"beside them: {_spread(loud)} s to Running")
        outcomes = stage.outcomes(objects, answers)
        untouched = stage.resident() == resident
        stage.remove_hostile(objects)
        quiet += stage.times_to_running("again", jobs - first)
        said(f"quiet again, all quiet ones together: {_spread(quiet)} s to Running")
    operator, agents = stage.restarts().since(before)
    return Beside(
        quiet_s=quiet,
        loud_s=loud,
        outcomes=outcomes,
        health=health,
        operator_restarts=operator,
        agent_restarts=agents,
        untouched=untouched,
    )


def tell(seen: Beside, said: Said) -> None:
    """One line for each object: what became of it and what it says; then what was unwell."""
    for one in seen.outcomes:
        mark = "ok " if one.expected else "BAD"
        said(f"{mark} {one.object.case}: {one.fate}: {' '.join(one.text.split())[:140]}")
    for line in sorted(set(seen.health.unwell)):
        said(f"BAD health: {line}")


def object_figures(seen: Beside) -> Figures:
    """Flat figures for the report."""
    fates = Counter(one.fate for one in seen.outcomes)
    return {
        "hostile_ratio": round(ratio(seen.loud_s, seen.quiet_s), 3),
        "quiet_median_s": round(statistics.median(seen.quiet_s), 2),
        "quiet_max_s": round(max(seen.quiet_s), 2),
        "loud_median_s": round(statistics.median(seen.loud_s), 2),
        "loud_max_s": round(max(seen.loud_s), 2),
        "hostile_objects": len(seen.outcomes),
        "unexpected_outcomes": sum(not one.expected for one in seen.outcomes),
        **{f"objects_{fate}": fates[fate] for fate in Fate},
        "health_samples": seen.health.samples,
        "unhealthy_samples": len(seen.health.unwell),
        "restarts": seen.operator_restarts + seen.agent_restarts,
        "operator_restarts": seen.operator_restarts,
        "agent_restarts": seen.agent_restarts,
        "resident_untouched": seen.untouched,
    }


def _spread(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.2f}, at most {max(seconds):.2f}"


# -- the cluster ---------------------------------------------------------------------------------


def on_cluster(steps: Sequence[str], options: argparse.Namespace) -> Figures:
    """The steps that need the local cluster, on one that is made for them."""
    figures: Figures = {}
    logs = ("operator", "node")
    with (
        installed("hostile", DEVICES, NotAnswered, NotPlayed, logs=logs) as (local, _),
        Progress() as progress,
    ):
        said = progress.say
        stage = Stage(ApiClient(local.kubeconfig))
        stage.open()
        if "objects" in steps:
            seen = objects_beside_work(stage, options.jobs, said)
            tell(seen, said)
            figures |= object_figures(seen)
        if "restarts" in steps:
            found = api_restarts(stage, local, options, said)
            restarts = int(figures.get("restarts") or 0) + int(found["restarts"] or 0)
            figures |= found | {"restarts": restarts}
        stage.close()
    return figures


def api_restarts(
    stage: Stage, local: LocalCluster, options: argparse.Namespace, said: Said
) -> Figures:
    """Restart the API server, then end the leader."""
    before: Restarts = stage.restarts()
    found = restart_and_schedule(
        stage,
        lambda: local.restart("apiserver"),
        count=options.restarts,
        every_s=options.every,
        said=said,
    )
    operator, agents = stage.restarts().since(before)
    faults = Faults(stage.api, local, VICTIM, random.Random(options.seed))
    placed, running = fail_over(stage, faults.end_operator)
    said(f"fail-over: a new job is placed after {placed:.1f} s and runs after {running:.1f} s")
    return {
        "api_restarts": options.restarts,
        "api_restart_back_s_median": round(statistics.median(found.placed_s), 2),
        "api_restart_back_s_max": round(max(found.placed_s), 2),
        "api_restart_unreachable_s_max": round(max(found.unreachable_s), 2),
        "api_restart_running_s_max": round(max(found.running_s), 2),
        "api_restart_operator_exits": operator,
        "api_restart_agent_exits": agents,
        "restarts": operator + agents,
        "fail_over_s": round(placed, 2),
        "fail_over_running_s": round(running, 2),
    }


# -- steps with a process of their own -----------------------------------------------------------


def fuzz(options: argparse.Namespace) -> Figures:
    """Random raw objects against every reader of operator and agent."""
    file = FOLDER / "fuzz.json"
    words = ("--objects", str(options.objects), "--seed", str(options.seed), "--out", str(file))
    found = _played("bench.fuzz", file, *words)
    return {name: found.get(name) for name in ("fuzzed", "escapes")} | {
        "fuzz_seed": options.seed,
        "fuzz_seconds": found.get("seconds"),
    }


def soak(options: argparse.Namespace) -> Figures:
    """Edits, churn and faults beside one operator."""
    words = ("--minutes", f"{options.soak:g}", "--seed", str(options.seed), "--out", str(FOLDER))
    found = _played("bench.soak", FOLDER / "soak.json", *words)
    return {name: found.get(name) for name in ("soak_minutes", "soak_growth")}


def _played(module: str, file: Path, *words: str) -> Figures:
    """Run a benchmark of its own and read its figures; the table at the end tells missed bars.

    Raises:
        SystemExit: it wrote no figures; why stands above.
    """
    file.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-u", "-m", module, *words], check=False, cwd=ROOT)
    try:
        body: Json = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{module} wrote no figures: {error}") from error
    figures: Figures = body.get("figures", body)
    return figures


def main() -> int:
    """Run the steps, print one table, write ``hostile.json``."""
    parser = argparse.ArgumentParser(prog="make bench-hostile", description=__doc__)
    parser.add_argument("--step", action="append", choices=STEPS, help="default: all of them")
    parser.add_argument("--objects", type=int, default=200_000, help="to fuzz")
    parser.add_argument("--jobs", type=int, default=12, help="timed without, and beside others")
    parser.add_argument("--restarts", type=int, default=10, help="of the API server")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two of them")
    parser.add_argument("--soak", type=float, default=15.0, help="minutes; the bar is for 120")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if min(options.objects, options.jobs, options.restarts) < 1 or options.soak <= 0:
        parser.error("give at least one object, two jobs, one restart and some soak")
    steps = tuple(options.step or STEPS)
    figures: Figures = {"seed": options.seed}
    if "fuzz" in steps:
        figures |= fuzz(options)
    if "tenants" in steps:
        figures |= tenants()
    if ON_CLUSTER & set(steps):
        figures |= on_cluster(steps, options)
    if "soak" in steps:
        figures |= soak(options)
    return report(figures, steps)


def report(figures: Figures, steps: Sequence[str]) -> int:
    """Print the table, write the file, judge by the bars of the steps that ran."""
    named = {name for step in steps for name in OF_STEP[step]}
    rows = [
        Row(what=name, ours=str(value), limit=LIMITS.get(name, ""))
        for name, value in figures.items()
    ]
    keys: Figures = dict.fromkeys(name for names in OF_STEP.values() for name in names)
    write("hostile", keys | figures, rows)
    return judge(figures, {name: bar for name, bar in BARS.items() if name in named})


if __name__ == "__main__":
    sys.exit(main())
