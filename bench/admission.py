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
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from bench import admission_gavel as gavel
from bench import admission_lucid as lucid
from bench.colocations import (
    GAVEL_TYPES,
    Gavel,
    Lucid,
    ServicePoint,
    TableError,
    read_gavel,
    read_lucid,
    read_parva,
)
from bench.live_learning import EPSILONS, Play, gavel_source, lucid_source, replay
from bench.live_tally import Tally
from bench.progress import Progress
from bench.report import DATA, Figure, Row, write
from bench.share_curve import fit_service_curve

SEEDS = 5
SLO = 2.0
PART = 0.1
HISTORY_SEEDS = 3
SPLITS = 200
LIVE_COUNTS = (4, 16, 64, 160)
PREDICTORS = ("no interference", "utilisation sum", "bias", "reference", "ours")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Args:
        argv: Command line; ``None`` = that of the process.
    """
    parser = argparse.ArgumentParser(prog="bench.admission", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="one fold seed, two splits")
    parser.add_argument(
        "--splits", type=int, default=SPLITS, help="random splits of every live replay"
    )
    given = parser.parse_args(argv)
    seeds = 1 if given.quick else given.seeds
    if seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        figures, rows = measure(given.data, seeds, splits=2 if given.quick else given.splits)
    except TableError as error:
        print(f"bench admission: {error}; give the folder of the tables with --data")
        return 0
    write("admission", figures, rows)
    return 0


def measure(folder: Path, seeds: int, *, splits: int) -> tuple[dict[str, Figure], list[Row]]:
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
    for gpu, left_out in gavel_runs.items():
        told = {name: one.result() for name, one in left_out.items()}
        for name, split in told.items():
            _split(gpu, name, split, figures, rows)
            group = {"pair": "G1", "config": "G2", "family": "G3"}[name]
            coverage.setdefault(group, []).extend(np.concatenate(split.covered))
            reference.extend(np.concatenate(split.covered_reference))
        ratio, low, high = told["pair"].ratio()
        figures[f"ratio_to_reference_{gpu}"] = ratio
        figures[f"ratio_to_reference_{gpu}_low"] = low
        figures[f"ratio_to_reference_{gpu}_high"] = high
        said = f"{ratio:.3f} ({low:.3f} to {high:.3f})"
        rows.append(Row(what=f"{gpu} pair-out, ours / reference", ours=said, limit="<= 0.95"))
    unseen, history = lucid_run.result()
    _lucid(unseen, history, figures, rows)
    coverage["G3"].extend(np.concatenate(unseen.covered))
    coverage["G1"].extend(np.concatenate(history.covered))
    _coverage(coverage, reference, figures, rows)
    _live(table, pairs, splits, figures, rows)
    return figures, rows


def _live(
    table: Gavel, pairs: Lucid, splits: int, figures: dict[str, Figure], rows: list[Row]
) -> None:
    """Replays of the operator's own learning path, from few observed pairs to many."""
    plays = live_plays(table, pairs)
    ours: dict[tuple[str, float], Tally] = {}
    theirs: dict[tuple[str, float], Tally] = {}
    with ProcessPoolExecutor() as pool, Progress() as progress:
        task = progress.task("live replays", len(plays) * splits)
        runs = {
            pool.submit(replay, play, seed): name
            for name, play in plays.items()
            for seed in range(splits)
        }
        for done, run in enumerate(as_completed(runs), start=1):
            asked, found = run.result()
            for eps, (chosen, other) in found.items():
                ours.setdefault((runs[run], eps), Tally()).add(asked, chosen)
                theirs.setdefault((runs[run], eps), Tally()).add(asked, other)
            task.to(done)
    for (name, eps), tally in sorted(ours.items()):
        plain = theirs[name, eps]
        rows.append(
            Row(
                what=f"{name}, budget {eps:.0%}",
                ours=f"violations {tally.violation:.1%} (at most {tally.upper95():.1%}), "
                f"recall {tally.recall:.1%}",
                baseline=f"{plain.violation:.1%}, {plain.recall:.1%}",
            )
        )
    for (name, eps), tally in ours.items():
        figures |= promised(plays[name].name, eps, tally)
    figures["splits"] = splits
    for eps in EPSILONS:
        worst = max(tally.upper95() for (_, budget), tally in ours.items() if budget == eps)
        figures[f"violation_upper95_eps{eps * 100:.0f}"] = worst
    many = [name for name, play in plays.items() if play.observed == max(LIVE_COUNTS)]
    figures["recall_eps5"] = min(ours[name, 0.05].recall for name in many)
    figures["recall_best_baseline_eps5"] = max(theirs[name, 0.05].recall for name in many)


def promised(name: str, eps: float, tally: Tally) -> dict[str, Figure]:
    """What a budget promised, and what became of it.

    Args:
        name: Of the play.
        eps: The budget, 0..1.
        tally: What was admitted under it.
    """
    prefix = f"live_{name}_eps{eps * 100:.0f}"
    return {
        f"{prefix}_admitted": tally.admitted.total(),
        f"{prefix}_violation": tally.violation,
        f"{prefix}_violation_upper95": tally.upper95(),
        f"{prefix}_recall": tally.recall,
    }


def live_plays(table: Gavel, pairs: Lucid) -> dict[str, Play]:
    """Every source with every number of observed pairs, by name."""
    sources = [gavel_source(table, gpu) for gpu in GAVEL_TYPES]
    found = {
        f"live {source.name}, pairs of {what} never together, {count} pairs observed": Play(
            source=source, observed=count, families=families, max_slowdown=SLO
        )
        for source in sources
        for what, families in (("classes", False), ("models", True))
        for count in LIVE_COUNTS
    }
    return found | {
        f"live lucid, pairs of models never together, {count} pairs observed": Play(
            source=lucid_source(pairs),
            observed=count,
            families=True,
            max_slowdown=lucid.MAX_SLOWDOWN,
        )
        for count in LIVE_COUNTS
    }


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
        if rule in ("certified", "mean"):
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
        rows.append(Row(what=f"Lucid {name}, rungs in force", ours=_counted(result.rungs)))
        for rule, chosen in result.selected.items():
            admitted, wrong, recall = gavel.rates(chosen)
            said = f"admits {admitted:.1f} %, violations {wrong:.1f} %, recall {recall:.1f} %"
            missed = f"falsely rejected {100 - recall:.1f} %"
            rows.append(Row(what=f"Lucid {name}, {rule}", ours=said, baseline=missed))
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
    by_group = [100.0 * float(np.mean(held)) for held in groups.values()]
    figures["coverage90_min"], figures["coverage90_max"] = min(by_group), max(by_group)
    everything = [one for held in groups.values() for one in held]
    figures["coverage90"] = 100.0 * float(np.mean(everything))
    figures["ref_coverage90"] = 100.0 * float(np.mean(reference))
    rows.append(
        Row(
            what="90 % bound holds, pooled",
            ours=f"{figures['coverage90']:.1f} % ({min(by_group):.1f} to {max(by_group):.1f})",
            baseline=f"{figures['ref_coverage90']:.1f} % (reference)",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
