# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How well slowdowns are predicted and admissions kept, on public tables of co-located jobs.

Prints every predictor side by side, in the same folds, and leaves ``admission.json``. Needs the
tables at hand; without them it says so and ends well. It must never copy them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bench import admission_gavel as gavel
from bench import admission_lucid as lucid
from bench.colocations import (
    GAVEL_TYPES,
    ServicePoint,
    TableError,
    read_gavel,
    read_lucid,
    read_parva,
)
from bench.progress import Progress
from bench.report import DATA, Figure, Row, write
from bench.share_curve import fit_service_curve

SEEDS = 5
SLO = 2.0
PART = 0.1
HISTORY_SEEDS = 3
PREDICTORS = ("no interference", "utilisation sum", "bias", "reference", "ours")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Args:
        argv: Command line; ``None`` = that of the process.
    """
    parser = argparse.ArgumentParser(prog="bench.admission", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="one fold seed")
    given = parser.parse_args(argv)
    seeds = 1 if given.quick else given.seeds
    if seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        figures, rows = measure(given.data, seeds)
    except TableError as error:
        print(f"bench admission: {error}; give the folder of the tables with --data")
        return 0
    write("admission", figures, rows)
    return 0


def measure(folder: Path, seeds: int) -> tuple[dict[str, Figure], list[Row]]:
    """All sections.

    Raises:
        TableError: a table is not there.
    """
    table, pairs, points = (
        read_gavel(folder),
        read_lucid(folder, max_slowdown=lucid.MAX_SLOWDOWN),
        read_parva(folder),
    )
    figures: dict[str, Figure] = {}
    rows: list[Row] = []
    coverage: dict[str, list[float]] = {}
    reference: list[float] = []
    _parva(points, seeds, figures, rows)
    with ProcessPoolExecutor() as pool:  # one process a core
        lucid_run = pool.submit(lucid.run, pairs, seeds=min(seeds, HISTORY_SEEDS))
        gavel_runs = {
            gpu: {
                "pair": pool.submit(
                    gavel.pair_out, table, gpu, seeds, slo=SLO if gpu == "v100" else None
                ),
                "config": pool.submit(gavel.config_out, table, gpu),
                "family": pool.submit(gavel.family_out, table, gpu),
            }
            for gpu in GAVEL_TYPES
        }
        with Progress() as progress:  # after the processes have begun: it has a thread
            ended = [one.done for runs in gavel_runs.values() for one in runs.values()]
            ended.append(lucid_run.done)
            task = progress.task("splits", len(ended))
            while task.done < len(ended):
                time.sleep(1.0)
                task.to(sum(done() for done in ended))
    for gpu, runs in gavel_runs.items():
        splits = {name: one.result() for name, one in runs.items()}
        for name, split in splits.items():
            _split(gpu, name, split, figures, rows)
            group = {"pair": "G1", "config": "G2", "family": "G3"}[name]
            coverage.setdefault(group, []).extend(np.concatenate(split.covered))
            reference.extend(np.concatenate(split.covered_reference))
        ours, other = (splits["pair"].tally(one).mape for one in ("ours", "reference"))
        figures[f"{gpu}_pair_ratio"] = ours / other
        figures[f"ref_{gpu}_pair_ratio"] = 1.0
        rows.append(Row(what=f"{gpu} pair-out, ours / reference", ours=f"{ours / other:.3f}"))
    unseen, history = lucid_run.result()
    _lucid(unseen, history, figures, rows)
    coverage["G3"].extend(np.concatenate(unseen.covered))
    coverage["G1"].extend(np.concatenate(history.covered))
    _coverage(coverage, reference, figures, rows)
    return figures, rows


def _split(
    gpu: str, name: str, split: gavel.Split, figures: dict[str, Figure], rows: list[Row]
) -> None:
    figures[f"{gpu}_{name}_mape"] = split.tally("ours").mape
    figures[f"ref_{gpu}_{name}_mape"] = split.tally("reference").mape
    for who in PREDICTORS:
        one = split.tally(who)
        rows.append(
            Row(
                what=f"{gpu} {name}-out, {who}",
                ours=f"{one.mape:.1f} %",
                baseline=f"{one.mape_slow:.1f} % of rows >= {gavel.SLOW}x",
            )
        )
    for rule, chosen in split.selected.items():
        admitted, wrong, recall = gavel.rates(chosen)
        said = f"admits {admitted:.1f} %, violations {wrong:.1f} %, recall {recall:.1f} %"
        rows.append(
            Row(
                what=f"{gpu} SLO {SLO}, {rule}",
                ours=said,
                baseline=f"falsely rejected {100 - recall:.1f} %",
            )
        )
        if rule in ("certified", "scan"):
            prefix = "" if rule == "certified" else "ref_"
            figures[f"{prefix}{gpu}_slo2_violation"] = wrong
            figures[f"{prefix}{gpu}_slo2_recall"] = recall


def _lucid(
    unseen: lucid.Unseen, history: lucid.Unseen, figures: dict[str, Figure], rows: list[Row]
) -> None:
    for name, result in (("model", unseen), ("history", history)):
        figures[f"lucid_{name}_mape"] = result.mape("ours")
        figures[f"ref_lucid_{name}_mape"] = result.mape("utilisation sum")
        for who in result.speed:
            slow = f"{result.mape(who, slow=True):.1f} % of rows >= {gavel.SLOW}x"
            said = f"{result.mape(who):.2f} %"
            rows.append(Row(what=f"Lucid {name}, {who}", ours=said, baseline=slow))
        rungs, rules = (_counted(one) for one in (result.rungs, result.rules))
        rows.append(Row(what=f"Lucid {name}, rungs in force", ours=rungs))
        rows.append(Row(what=f"Lucid {name}, rule that training folds would set", ours=rules))
        for rule, chosen in result.selected.items():
            admitted, wrong, recall = gavel.rates(chosen)
            said = f"admits {admitted:.1f} %, violations {wrong:.1f} %, recall {recall:.1f} %"
            missed = f"falsely rejected {100 - recall:.1f} %"
            chosen_by = "the scan, without certificate" if name == "model" else "certified"
            rule_said = f"{rule} ({chosen_by})" if rule == "ours" else rule
            rows.append(Row(what=f"Lucid {name}, {rule_said}", ours=said, baseline=missed))
            prefix = {"ours": "", "utilisation sum, tuned": "ref_"}.get(rule)
            if prefix is not None:
                key = "unseen" if name == "model" else "history"
                figures[f"{prefix}lucid_{key}_admit"] = admitted
                figures[f"{prefix}lucid_{key}_violation"] = wrong


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {count}x" for name, count in sorted(Counter(names).items()))


def _parva(
    points: Sequence[ServicePoint], seeds: int, figures: dict[str, Figure], rows: list[Row]
) -> None:
    by_seed = [parva_error(points, seed) for seed in range(max(seeds, 1))]
    figures["parva_mape"] = float(np.mean(by_seed))
    spread = f"{min(by_seed):.1f} to {max(by_seed):.1f} % over {len(by_seed)} seeds"
    said = f"{float(np.mean(by_seed)):.1f} %"
    rows.append(Row(what="ParvaGPU latency from 10 % of points", ours=said, baseline=spread))


def parva_error(points: Sequence[ServicePoint], seed: int) -> float:
    """Mean error in percent on the points that no fit has seen, all models together."""
    random = np.random.default_rng(seed)
    errors: list[float] = []
    for model in sorted({one.model for one in points}):
        own = [one for one in points if one.model == model]
        order = random.permutation(len(own))
        count = max(4, round(PART * len(own)))
        seen, rest = [own[one] for one in order[:count]], [own[one] for one in order[count:]]
        curve = fit_service_curve(
            [(one.batch, one.processes, one.slices) for one in seen], [one.seconds for one in seen]
        )
        said = [curve.seconds(one.batch, one.processes, one.slices) for one in rest]
        errors += [abs(a / one.seconds - 1) for a, one in zip(said, rest, strict=True)]
    return 100.0 * float(np.mean(errors))


def _coverage(
    groups: Mapping[str, Sequence[float]],
    reference: Sequence[float],
    figures: dict[str, Figure],
    rows: list[Row],
) -> None:
    for group, held in sorted(groups.items()):
        figures[f"coverage90_{group.lower()}"] = 100.0 * float(np.mean(held))
        rows.append(Row(what=f"90 % bound holds, {group}", ours=f"{100 * np.mean(held):.1f} %"))
    everything = [one for held in groups.values() for one in held]
    figures["coverage90"] = 100.0 * float(np.mean(everything))
    figures["ref_coverage90"] = 100.0 * float(np.mean(reference))
    rows.append(
        Row(
            what="90 % bound holds, pooled",
            ours=f"{figures['coverage90']:.1f} %",
            baseline=f"{figures['ref_coverage90']:.1f} % (reference)",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
