# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in, tables and one JSON file out: the same rows and seed give the same bytes.

Names the GPU, the driver and every count. A bar that the rows cannot test is reported as missing,
never as passed.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.gpu import risk
from bench.gpu.measured import Data, Measured, load
from bench.gpu.predictors import MISSING, World, find_knee
from bench.gpu.splits import SPLITS, Told, all_splits, figures, pair_rows
from ullage.engines.admission.prior import KNEE, base, own_share
from ullage.engines.admission.queue_map import Load, Service, latency_s

DRIFT_PERCENT: Final = 3.0
NOISE_PERCENT: Final = 2.0
LEVER: Final = ("DEC", "PRE")
"""Memory-bound and tensor-bound neighbour of the share sweep."""


def analyse(
    paths: Iterable[Path],
    out: Path,
    seed: int,
    gpu: str = "",
    names: Sequence[str] = tuple(SPLITS),
) -> str:
    """Analyse rows, write ``gpu-analysis.json`` and give the tables as text.

    Args:
        paths: Files of rows, or folders of them.
        out: Where the JSON file goes.
        seed: Of folds and resamples.
        gpu: Only rows of this type; empty = there must be but one.
        names: Which splits.

    Raises:
        RowRefused: the rows cannot carry a conclusion.
    """
    data = load(paths, gpu)
    world = World.of(data.rows)
    pairs = pair_rows(data.rows)
    splits = all_splits(world, pairs, seed, names)
    told = splits.get("leave-pair-out", {}).get("prior + GP", [])
    body: dict[str, object] = {
        "said": data.said(),
        "gpu_name": data.gpu,
        "drivers": list(data.drivers),
        "no_gpu_was_used": data.fake,
        "analysis_seed": seed,
        "run_seeds": list(data.seeds),
        "files": list(data.files),
        "rows": len(data.rows),
        "pair_rows": len(pairs),
        "left_out": dict(data.left_out),
        "noise": noise(data.rows),
        "knee": {"found": find_knee(world, pairs), "of_the_prior": KNEE},
        "curves": curves(world),
        "splits": {
            split: {name: figures(found, seed) for name, found in by_name.items()}
            for split, by_name in splits.items()
        },
        "selective_risk": risk.table(told),
        "triples": triples(world, data.rows),
        "share_lever": share_lever(data.rows),
        "queue_map": queue_map(data.rows),
        "not_computed": dict(MISSING),
    }
    body["rules"] = rules(body)
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(body, indent=2, sort_keys=True, allow_nan=False)
    (out / "gpu-analysis.json").write_text(text + "\n", encoding="utf-8")
    return tables(data, body, splits)


def noise(rows: Sequence[Measured]) -> dict[str, object]:
    """Variation of repeats, and drift of the reference pair from first to last third, percent."""
    repeats: dict[tuple[object, ...], list[float]] = {}
    for one in rows:
        if one.block == "noise":
            key = (one.run, one.tenant, one.percent, one.others)
            repeats.setdefault(key, []).append(one.mean_ms)
    cvs = [100 * stdev(found) / fmean(found) for found in repeats.values() if len(found) > 1]
    drifts: dict[str, float] = {}
    for run, tenant in sorted({(one.run, one.tenant) for one in rows if one.block == "reference"}):
        times = [
            one.mean_ms
            for one in rows
            if (one.block, one.run, one.tenant) == ("reference", run, tenant)
        ]
        third = max(1, len(times) // 3)
        moved = abs(median(times[-third:]) - median(times[:third]))
        drifts[f"{run}/{tenant}"] = round(100 * moved / median(times), 3)
    worst = max(drifts.values(), default=None)
    return {
        "configurations": len(cvs),
        "cv_median_percent": round(median(cvs), 3) if cvs else None,
        "cv_max_percent": round(max(cvs), 3) if cvs else None,
        "drift_percent": drifts,
        "drifted": None if worst is None else worst > DRIFT_PERCENT,
    }


def curves(world: World) -> dict[str, dict[str, float]]:
    """T(p) = fixed + scaled / p of every class, ms."""
    return {
        name: {
            "fixed_ms": round(1e3 * one.curve.fixed_s, 4),
            "scaled_ms": round(1e3 * one.curve.scaled_s, 4),
        }
        for name, one in world.profiles.items()
        if one.curve is not None
    }


def triples(world: World, rows: Sequence[Measured]) -> dict[str, object]:
    """Three tenants: the prior for all three, and the sum of the pairs' measured logs."""
    beside: dict[tuple[tuple[str, int], tuple[str, int]], list[float]] = {}
    for one in pair_rows(rows):
        key = ((one.tenant, one.percent), one.others[0])
        beside.setdefault(key, []).append(math.log(one.contention))
    of_prior, of_sums = [], []
    for one in rows:
        if one.block != "triple":
            continue
        of_prior.append(abs(math.exp(base(world.sides(one))[0][0]) / one.slowdown - 1))
        known = [beside.get(((one.tenant, one.percent), other)) for other in one.others]
        parts = [median(found) for found in known if found is not None]
        if len(parts) == len(known):
            own = math.log(own_share(world.side(one.tenant, one.percent)))
            of_sums.append(abs(math.exp(own + math.fsum(parts)) / one.slowdown - 1))
    return {
        "n": len(of_prior),
        "prior_mape": round(100 * fmean(of_prior), 3) if of_prior else None,
        "n_sums": len(of_sums),
        "sum_of_pair_logs_mape": round(100 * fmean(of_sums), 3) if of_sums else None,
    }


def share_lever(rows: Sequence[Measured]) -> list[dict[str, object]]:
    """Whether a cap on the aggressor protects a memory-bound victim, and the reverse."""
    found: dict[tuple[str, int, str, int], list[float]] = {}
    for one in pair_rows(rows):
        if one.pair == tuple(sorted(LEVER)):
            other, percent = one.others[0]
            found.setdefault((one.tenant, one.percent, other, percent), []).append(one.slowdown)
    return [
        {"victim": key[0], "percent": key[1], "aggressor": key[2], "aggressor_percent": key[3],
         "slowdown": round(median(found[key]), 4)}
        for key in sorted(found)
    ]  # fmt: skip


def queue_map(rows: Sequence[Measured]) -> list[dict[str, object]]:
    """Open loops: measured 99th percentile beside the queue map on the closed loop's service."""
    closed = {(one.run, one.tenant, one.percent, one.others): one for one in pair_rows(rows)}
    out = []
    for one in rows:
        service = closed.get((one.run, one.tenant, one.percent, one.others))
        if one.rate is None or one.p99_ms is None or service is None:
            continue
        spread = (service.p90_ms - service.p50_ms) / 1.2816 / service.mean_ms
        told_s = latency_s(
            1.0,
            Service(
                mean_s=service.mean_ms / 1e3,
                quantile_s=(service.p99_ms or service.p90_ms) / 1e3,
                cv2=max(0.0, spread) ** 2,
            ),
            Load(requests_per_s=one.rate),
            0.99,
        )
        out.append(
            {"tenant": one.tenant, "beside": [list(other) for other in one.others],
             "requests_per_s": one.rate, "p99_ms": round(one.p99_ms, 4),
             "queue_map_ms": round(1e3 * told_s, 4) if math.isfinite(told_s) else None}
        )  # fmt: skip
    return out


def _mape(body: Mapping[str, object], split: str, name: str) -> float | None:
    splits = body["splits"]
    assert isinstance(splits, dict)
    found = splits.get(split, {}).get(name, {}).get("mape")
    return float(found) if found is not None else None


def rules(body: Mapping[str, object]) -> dict[str, str]:
    """Kill or keep; what the rows cannot decide is missing."""
    split = "leave-workload-out, 0 probes"
    ours, plain = (_mape(body, split, name) for name in ("prior + GP", "additive max(SM, DRAM)"))
    said = {"zero-shot prediction": "missing"}
    if ours and plain:
        verdict = "keep" if plain / ours >= 2 else "kill after two runs"
        said["zero-shot prediction"] = f"{verdict}: additive {plain:g} %, ours {ours:g} %"
    found, three = body["noise"], body["triples"]
    assert isinstance(found, dict)
    assert isinstance(three, dict)
    cv, many = found["cv_median_percent"], three["sum_of_pair_logs_mape"]
    said["noise"] = (
        "missing" if cv is None else f"{'ok' if cv <= NOISE_PERCENT else 'too noisy'}: {cv:g} %"
    )
    pair = _mape(body, "leave-pair-out", "prior + GP")
    said["N-way"] = "missing"
    if many is not None and pair:
        verdict = "keep" if many <= 1.5 * pair else "two tenants at most"
        said["N-way"] = f"{verdict}: triples {many:g} %, pairs {pair:g} %"
    levers = body["share_lever"]
    assert isinstance(levers, list)
    said["shares as a lever"] = "see share_lever" if levers else "missing"
    if body["no_gpu_was_used"]:
        said = {name: f"says nothing of a GPU ({text})" for name, text in said.items()}
    return said


# -- tables ---------------------------------------------------------------------------------


def _cell(value: object) -> str:
    if value is None:
        return "missing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tables(
    data: Data, body: Mapping[str, object], splits: Mapping[str, Mapping[str, Sequence[Told]]]
) -> str:
    """What a person reads; the JSON file has everything."""
    console = Console(file=io.StringIO(), width=110, highlight=False)
    console.print(data.said(), soft_wrap=True)
    out = dict(data.left_out) or "nothing"
    console.print(f"left out: {out}; pair rows: {body['pair_rows']}", soft_wrap=True)
    console.print(f"noise: {body['noise']}", soft_wrap=True)
    console.print(f"knee: {body['knee']}", soft_wrap=True)
    columns = ("n", "mape", "mape_ci95", "n_slow", "mape_slow", "p90_error")
    found = body["splits"]
    assert isinstance(found, dict)
    for split in splits:
        table = Table("predictor (errors in %)", *columns, title=split, title_justify="left")
        for name, line in found[split].items():
            table.add_row(name, *(_cell(line[column]) for column in columns))
        console.print(table)
    lines = body["selective_risk"]
    assert isinstance(lines, list)
    if lines:
        table = Table(*lines[0], title="selective risk, leave-pair-out", title_justify="left")
        for line in lines:
            table.add_row(*(_cell(value) for value in line.values()))
        console.print(table)
    said = body["rules"]
    assert isinstance(said, dict)
    for name, verdict in said.items():
        console.print(f"rule {name}: {verdict}")
    for name, why in MISSING.items():
        console.print(f"not computed: {name} ({why})")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
