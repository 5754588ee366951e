# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Predicted steps of transformers beside published ones and beside Calculon; planners' own time.

The eight iteration times are those of arXiv 2205.05198, table 5 (A100 80 GB, NVLink inside nodes of
eight, HDR InfiniBand between them). One constant, the efficiency of large matrix products, is
fitted on the first and the last of them; the other six count. All other pairs are fitted, too, and
reported. Ten configurations with their throughput are those of PTD-P (SC 2021, table 1).

With ``--calculon`` its times stand beside ours, and it judges the plans that are chosen.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from bench.plans_calculon import Calculon
from bench.report import Bars, Figure, Row, judge, write
from ullage.engines.parallelism.chain import ChainProblem, chain_plan
from ullage.engines.parallelism.dimensions import ParallelDegrees, Recomputation, TransformerShape
from ullage.engines.parallelism.records import DeviceLinks, LayerCost, LinkSpeed, PlanRefusal
from ullage.engines.parallelism.step_time import DeviceSpeed, step_estimate
from ullage.engines.parallelism.transformer import (
    TransformerChoice,
    TransformerProblem,
    transformer_plan,
)

A100: Final = DeviceSpeed(peak_flops=312e12, bytes_per_s=2.039e12)
NODES: Final = DeviceLinks(
    device=LinkSpeed(bytes_per_s=2.4e11, latency_s=8e-6),
    node=LinkSpeed(bytes_per_s=2.1e10, latency_s=1e-5),
    devices=8,
)
USABLE_BYTES: Final = 74e9
"""Of 80 GB, without the context of a process."""
EFFICIENCIES: Final = tuple(0.5 + 0.005 * step for step in range(100))
FITTED_ON: Final = (0, 7)
"""The smallest model with all recomputed, the largest with little."""
TABLE_ON: Final = (0, 4, 9)
"""Rows of PTD-P's table that its efficiency is fitted on."""
BARS: Final[Bars] = {
    "table_error_over_constant": lambda ratio: ratio <= 0.5,
    "ptdp_mean_error": lambda error: error <= 0.045,
    "ptdp_max_error": lambda error: error <= 0.10,
    "transformer_plan_ms": lambda taken: taken <= 100,
    "chain_plan_s": lambda taken: taken <= 1,
}
TIMED: Final = 3
"""Runs of a planner, the shortest of which counts: the machine does other work, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """A measured iteration.

    Attributes:
        model: Name of the model.
        shape: The model.
        degrees: Its spread.
        batch: Samples of a step.
        seconds: The iteration.
    """

    model: str
    shape: TransformerShape
    degrees: ParallelDegrees
    batch: int
    seconds: float

    def predicted_s(self, efficiency: float) -> float:
        """The model's step with an efficiency of matrix products."""
        speed = replace(A100, efficiency=efficiency)
        return step_estimate(self.shape, self.degrees, speed, NODES, self.batch).step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepErrors:
    """Errors of the steps on which nothing was fitted.

    Attributes:
        efficiency: The fitted constant.
        errors: Relative, in order.
    """

    efficiency: float
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the absolute errors."""
        return statistics.mean(map(abs, self.errors))

    @property
    def largest(self) -> float:
        """Largest absolute error."""
        return max(map(abs, self.errors))


def gpt(layers: int, hidden: int, heads: int) -> TransformerShape:
    """A GPT of these papers."""
    return TransformerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden,
        vocabulary=51_200,
        sequence=2_048,
        stored_attention=True,
    )


def published() -> tuple[PublishedStep, ...]:
    """Of arXiv 2205.05198, tables 3 and 5: all recomputed, then sequence parallel and selective."""
    table = (
        ("22B", gpt(48, 6144, 64), 1, 4, 4, 1, (1.42, 1.10)),
        ("175B", gpt(96, 12288, 96), 8, 64, 1, 3, (18.13, 13.75)),
        ("530B", gpt(105, 20480, 128), 35, 280, 1, 3, (49.05, 37.83)),
        ("1T", gpt(128, 25600, 160), 64, 512, 1, 1, (94.42, 71.49)),
    )
    return tuple(
        PublishedStep(
            model=model,
            shape=shape,
            degrees=ParallelDegrees(
                tensor=8,
                pipeline=pipeline,
                chunks=chunks,
                microbatch=microbatch,
                recomputation=kind,
                sequence_parallel=kind is Recomputation.SELECTIVE,
                distributed_optimizer=False,
            ),
            batch=batch,
            seconds=seconds,
        )
        for model, shape, pipeline, batch, microbatch, chunks, measured in table
        for kind, seconds in zip(
            (Recomputation.FULL, Recomputation.SELECTIVE), measured, strict=True
        )
    )


# layers, hidden, heads, devices, tensor, pipeline, batch, TFLOP/s a device: PTD-P, table 1
WEAK_SCALING: Final = (
    (24, 2304, 24, 32, 1, 1, 512, 137),
    (30, 3072, 32, 64, 2, 1, 512, 138),
    (36, 4096, 32, 128, 4, 1, 512, 142),
    (40, 6144, 48, 256, 8, 1, 1024, 135),
    (48, 8192, 64, 512, 8, 2, 1536, 138),
    (60, 10240, 80, 1024, 8, 4, 1792, 140),
    (80, 12288, 96, 1536, 8, 8, 2304, 148),
    (96, 16384, 128, 1920, 8, 16, 2160, 155),
    (105, 20480, 128, 2520, 8, 35, 2520, 163),
    (128, 25600, 160, 3072, 8, 64, 3072, 163),
)


def fitted(steps: Sequence[PublishedStep], on: tuple[int, ...]) -> StepErrors:
    """Fit the efficiency to some steps by least squares, and judge the others.

    Args:
        steps: All steps.
        on: Indices of those that it is fitted to.
    """

    def distance(efficiency: float) -> float:
        errors = (steps[n].predicted_s(efficiency) / steps[n].seconds - 1 for n in on)
        return sum(error**2 for error in errors)

    best = min(EFFICIENCIES, key=distance)
    return StepErrors(
        efficiency=best,
        errors=tuple(
            step.predicted_s(best) / step.seconds - 1
            for number, step in enumerate(steps)
            if number not in on
        ),
    )


def all_pairs(steps: Sequence[PublishedStep]) -> list[StepErrors]:
    """The errors with the constant fitted to every pair of steps."""
    return [fitted(steps, pair) for pair in combinations(range(len(steps)), 2)]


def table_errors() -> tuple[float, float, float]:
    """Errors of PTD-P's table, whose software is a year older: the efficiency is fitted again.

    The table has no sizes of microbatches and chunks; the fastest are taken, which flatters.

    Returns:
        The efficiency fitted on three rows, the mean error of the other seven, and that of the
        constant throughput which is the mean of the three.
    """
    measured = [row[-1] for row in WEAK_SCALING]
    rates = {efficiency: table_rates(efficiency) for efficiency in EFFICIENCIES[::2]}
    best = min(
        rates, key=lambda value: sum((rates[value][n] / measured[n] - 1) ** 2 for n in TABLE_ON)
    )
    constant = statistics.mean(measured[n] for n in TABLE_ON)
    others = [n for n in range(len(measured)) if n not in TABLE_ON]
    return (
        best,
        statistics.mean(abs(rates[best][n] / measured[n] - 1) for n in others),
        statistics.mean(abs(constant / measured[n] - 1) for n in others),
    )


def table_rates(efficiency: float) -> list[float]:
    """TFLOP/s of a device that the model predicts for each row of PTD-P's table."""
    speed = replace(A100, efficiency=efficiency)
    rates = []
    for layers, hidden, heads, devices, tensor, pipeline, batch, _ in WEAK_SCALING:
        shape = gpt(layers, hidden, heads)
        data = devices // (tensor * pipeline)
        step_s = min(
            step_estimate(
                shape,
                ParallelDegrees(
                    tensor=tensor,
                    pipeline=pipeline,
                    data=data,
                    chunks=chunks,
                    microbatch=microbatch,
                    recomputation=Recomputation.FULL,
                    sequence_parallel=False,
                    distributed_optimizer=False,
                ),
                speed,
                NODES,
                batch,
            ).step_s
            for microbatch in (1, 2, 4, 8)
            for chunks in (1, 2, 3, 4)
            if batch // data % microbatch == 0
            and (chunks == 1 or (pipeline > 1 and layers % (pipeline * chunks) == 0))
        )
        # SC 2021, equation 3: FLOPs of an iteration with full recomputation
        terms = 1 + 2_048 / (6 * hidden) + 51_200 / (16 * layers * hidden)
        rates.append(96 * batch * 2_048 * layers * hidden**2 * terms / step_s / devices / 1e12)
    return rates


def planned(efficiency: float) -> tuple[list[TransformerChoice], float]:
    """Choices for the ten configurations of PTD-P's table, and seconds of the slowest of them."""
    slowest, choices = 0.0, []
    for layers, hidden, heads, devices, _, _, batch, _ in WEAK_SCALING:
        problem = TransformerProblem(
            shape=gpt(layers, hidden, heads),
            devices=devices,
            batch=batch,
            speed=replace(A100, efficiency=efficiency),
            links=NODES,
            memory_bytes=USABLE_BYTES,
        )
        taken = []
        for _ in range(TIMED):
            began = time.perf_counter()
            choice = transformer_plan(problem)
            taken.append(time.perf_counter() - began)
        if isinstance(choice, PlanRefusal):
            raise SystemExit(f"no plan for {layers} layers on {devices} devices: {choice}")
        slowest = max(slowest, min(taken))
        choices.append(choice)
    return choices, slowest


def chain_s() -> float:
    """Seconds to split 100 layers over 64 devices."""
    layers = tuple(
        LayerCost(
            name=f"layers.{number}",
            forward_s=0.01 * (1 + number % 7),
            backward_s=0.02 * (1 + number % 5),
            activation_bytes=1e7 * (1 + number % 3),
            parameter_bytes=2e8 * (1 + number % 4),
        )
        for number in range(100)
    )
    problem = ChainProblem(
        layers=layers, devices=64, links=NODES, memory_bytes=40e9, microbatches=512
    )
    began = time.perf_counter()
    chain_plan(problem)
    return time.perf_counter() - began


def regrets(choices: Sequence[TransformerChoice], peer: Calculon) -> dict[str, Figure]:
    """Steps of the plans beside the best of those within the error, by Calculon's times.

    Args:
        choices: Of the ten configurations.
        peer: Judges every plan of theirs.

    Returns:
        Mean and largest excess of the chosen plans, and of our fastest ones.
    """
    asked = [
        (gpt(*row[:3]), plan.degrees, row[6])
        for row, choice in zip(WEAK_SCALING, choices, strict=True)
        for plan in (choice.chosen, *choice.within)
    ]
    times = iter(peer.judged(asked))
    chosen, fastest = [], []
    for choice in choices:
        own, *others = [next(times) for _ in (choice.chosen, *choice.within)]
        chosen.append(own / min(others) - 1)
        fastest.append(others[0] / min(others) - 1)
    return {
        "calculon_regret_of_chosen_mean": statistics.mean(chosen),
        "calculon_regret_of_chosen_max": max(chosen),
        "calculon_regret_of_fastest_mean": statistics.mean(fastest),
        "calculon_regret_of_fastest_max": max(fastest),
    }


def measure(peer: Calculon | None) -> tuple[dict[str, Figure], list[Row]]:
    """All figures; Calculon's are ``None`` without it."""
    steps = published()
    own, pairs = fitted(steps, FITTED_ON), all_pairs(steps)
    figures: dict[str, Figure] = {
        "ptdp_efficiency": own.efficiency,
        "ptdp_mean_error": own.mean,
        "ptdp_max_error": own.largest,
        "ptdp_mean_error_of_all_pairs": statistics.mean(pair.mean for pair in pairs),
        "ptdp_mean_error_of_the_worst_pair": max(pair.mean for pair in pairs),
        "ptdp_pairs_within_bars": sum(
            BARS["ptdp_mean_error"](pair.mean) and BARS["ptdp_max_error"](pair.largest)
            for pair in pairs
        ),
        "ptdp_pairs": len(pairs),
        "calculon_mean_error": None,
        "calculon_max_error": None,
    }
    efficiency, mean, constant = table_errors()
    figures |= {
        "table_efficiency": efficiency,
        "table_mean_error": mean,
        "table_constant_mean_error": constant,
        "table_error_over_constant": mean / constant,
    }
    choices, slowest = planned(own.efficiency)
    figures |= {
        "transformer_plan_ms": 1_000 * slowest,
        "chain_plan_s": chain_s(),
        "degrees_of_the_table": sum(
            choice.chosen.spread[:2] == row[4:6]
            for row, choice in zip(WEAK_SCALING, choices, strict=True)
        ),
        "chosen_over_fastest_max": max(
            choice.chosen.estimate.step_s / choice.within[0].estimate.step_s for choice in choices
        ),
    }
    theirs: Mapping[str, tuple[float, float]] = {}
    if peer is None:
        print("bench plans: Calculon left out; give its checkout with --calculon")
    else:
        try:
            theirs = peer.published()
            figures |= regrets(choices, peer)
        except (OSError, ValueError) as error:
            print(f"bench plans: Calculon left out: {error}")
    rows, errors = [], []
    for number, step in enumerate(steps):
        full = step.degrees.recomputation is Recomputation.FULL
        seconds = theirs.get(step.model, (None, None))[0 if full else 1]
        if seconds is not None:
            errors.append(seconds / step.seconds - 1)
        rows.append(
            Row(
                what=f"{step.model}, {'full' if full else 'selective'} recomputation, s"
                + (" (fitted)" if number in FITTED_ON else ""),
                ours=f"{step.predicted_s(own.efficiency):.2f}",
                baseline="" if seconds is None else f"Calculon {seconds:.2f}",
                limit=f"published {step.seconds:.2f}",
            )
        )
    if len(errors) == len(steps):
        figures["calculon_mean_error"] = statistics.mean(map(abs, errors))
        figures["calculon_max_error"] = max(map(abs, errors))
    rows += [Row(what=name, ours=_said(value)) for name, value in figures.items()]
    return figures, rows


def _said(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Args:
        argv: Command line; ``None`` = that of the process.

    Returns:
        The exit status: 0, or 1 when a bar is missed.
    """
    parser = argparse.ArgumentParser(prog="bench.plans", description=__doc__)
    parser.add_argument("--calculon", type=Path, help="checkout of calculon-ai/calculon")
    parser.add_argument(
        "--calculon-python", default=sys.executable, help="interpreter with numpy, pandas, psutil"
    )
    given = parser.parse_args(argv)
    peer = None
    if given.calculon is not None:
        peer = Calculon(folder=given.calculon, python=given.calculon_python)
    figures, rows = measure(peer)
    write("plans", figures, rows)
    return judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
