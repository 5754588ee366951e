# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Share and number of replicas of a service for a load: requests in virtual time.

Each configuration is simulated twice: with the fewest constant replicas that meet the objective,
and with the autoscaler. The autoscaler is not tuned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.engines.scaling.autoscaler import ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.following import Heard, ScalingMemory, follow
from ullage.engines.scaling.forecast import Floats
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.simulator import (
    PlayedRequests,
    RequestLoad,
    Scaler,
    ScalerView,
    play_requests,
)
from ullage.scheduling.times import LOAD_BIN_S
from ullage_simulate.progress import Follow

MOST_REPLICAS: Final = 1024
WHOLE: Final = 100
HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuestion:
    """A load, its objective, and the possible replicas."""

    name: str
    arrival_s: Floats
    target: LatencyTarget
    replicas: tuple[Configuration, ...]
    launch_s: float
    most: int = MOST_REPLICAS
    season_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingOutcome:
    """Outcome of the load under one configuration.

    ``device_s`` counts devices, a share as its fraction; ``played`` is the run itself.
    """

    configuration: Configuration
    scaled: bool
    attainment: float
    most: int
    mean: float
    device_s: float
    played: PlayedRequests

    @property
    def name(self) -> str:
        """Configuration and way, for tables and legends."""
        configuration = self.configuration
        way = "autoscaled" if self.scaled else "fixed"
        return f"{configuration.accelerator} {configuration.share_percent} % {way}"

    @property
    def dollars(self) -> float:
        """Cost by the price of a device-hour; 0 without a price."""
        return self.device_s / HOUR * self.configuration.cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingAnswer:
    """Outcomes in the order of the configurations; ``best`` is the cheapest that meets it."""

    question: ServingQuestion
    outcomes: tuple[ServingOutcome, ...]
    best: ServingOutcome | None


def objective_scaler(configuration: Configuration, terms: ScalingTerms) -> Scaler:
    """The operator's autoscaler as a scaler for the simulator."""
    memory = ScalingMemory()

    def scaler(seen: ScalerView) -> int:
        nonlocal memory
        heard = Heard(
            now_s=seen.now_s,
            requests_per_s=seen.rates[-1],
            late=seen.late,
            ended=seen.ended,
            waiting=seen.waiting,
            current=seen.current,
        )
        decision, memory = follow(memory, heard, configuration, terms)
        return decision.replicas

    return scaler


def answer(question: ServingQuestion, follow: Follow) -> ServingAnswer:
    """Simulate every configuration.

    Args:
        question: Inputs.
        follow: Takes name and length of a task; returns its progress callback.
    """
    progress = follow(question.name, 2 * len(question.replicas))
    outcomes: list[ServingOutcome] = []
    for configuration in question.replicas:
        for play in (_fixed, _scaled):
            outcomes.append(play(question, configuration))
            progress(len(outcomes))
    keeps = [outcome for outcome in outcomes if outcome.attainment >= question.target.quantile]
    priced = all(outcome.configuration.cost > 0 for outcome in outcomes)
    best = min(
        keeps, key=lambda outcome: outcome.dollars if priced else outcome.device_s, default=None
    )
    return ServingAnswer(question=question, outcomes=tuple(outcomes), best=best)


def _requests(question: ServingQuestion, configuration: Configuration) -> RequestLoad:
    mean_s, sigma = configuration.service.mean_s, configuration.service.sigma
    drawn = np.random.default_rng(question.seed).lognormal(
        math.log(mean_s) - sigma**2 / 2, sigma, question.arrival_s.size
    )
    return RequestLoad(arrival_s=question.arrival_s, service_s=drawn)


def _outcome(
    question: ServingQuestion,
    configuration: Configuration,
    scaler: Scaler,
    first: int,
    *,
    scaled: bool,
) -> ServingOutcome:
    played = play_requests(
        _requests(question, configuration),
        scaler,
        limit_s=question.target.limit_s,
        bin_s=LOAD_BIN_S,
        launch_s=question.launch_s,
        first=first,
    )
    span_s = max(float(question.arrival_s[-1]), LOAD_BIN_S)
    return ServingOutcome(
        configuration=configuration,
        scaled=scaled,
        attainment=played.attained(question.target.limit_s),
        most=max(count for _, count in played.changes),
        mean=played.replica_s / span_s,
        device_s=played.replica_s * configuration.share_percent / WHOLE,
        played=played,
    )


def _fixed(question: ServingQuestion, configuration: Configuration) -> ServingOutcome:
    """The fewest constant replicas that meet the objective, by bisection; else the maximum."""

    def played(count: int) -> ServingOutcome:
        return _outcome(question, configuration, lambda _: count, count, scaled=False)

    offered = (
        question.arrival_s.size
        * configuration.service.mean_s
        / max(float(question.arrival_s[-1]), 1.0)
    )
    low, high = 0, min(question.most, max(1, math.ceil(offered)))
    outcome = played(high)
    while outcome.attainment < question.target.quantile and high < question.most:
        low, high = high, min(question.most, 2 * high)
        outcome = played(high)
    while high - low > 1 and outcome.attainment >= question.target.quantile:
        middle = (low + high) // 2
        tried = played(middle)
        if tried.attainment >= question.target.quantile:
            high, outcome = middle, tried
        else:
            low = middle
    return outcome


def _scaled(question: ServingQuestion, configuration: Configuration) -> ServingOutcome:
    terms = ScalingTerms(
        target=question.target,
        least=1,
        most=question.most,
        bin_s=LOAD_BIN_S,
        launch_s=question.launch_s,
        season_s=question.season_s,
    )
    early = np.searchsorted(question.arrival_s, 4 * LOAD_BIN_S) / (4 * LOAD_BIN_S)
    first = min(question.most, math.ceil(early * configuration.service.mean_s) + 1)
    return _outcome(
        question, configuration, objective_scaler(configuration, terms), first, scaled=True
    )


def to_json(result: ServingAnswer) -> str:
    """Figures of every configuration."""
    rows_ = [
        {
            "accelerator": outcome.configuration.accelerator,
            "share": outcome.configuration.share_percent,
            "scaled": outcome.scaled,
            "attainment": round(outcome.attainment, 6),
            "mostReplicas": outcome.most,
            "meanReplicas": round(outcome.mean, 3),
            "deviceHours": round(outcome.device_s / HOUR, 3),
            "dollars": round(outcome.dollars, 2) if outcome.configuration.cost > 0 else None,
            "best": outcome is result.best,
        }
        for outcome in result.outcomes
    ]
    target = result.question.target
    head = {
        "trace": result.question.name,
        "requests": int(result.question.arrival_s.size),
        "percentile": target.quantile * WHOLE,
        "limitMs": target.limit_s * 1e3,
    }
    return json.dumps({**head, "outcomes": rows_}, indent=2) + "\n"


def rates(arrival_s: Sequence[float] | Floats, points: int) -> tuple[Floats, Floats]:
    """Hours and requests per second in so many equal intervals."""
    times = np.asarray(arrival_s)
    counts, edges = np.histogram(times, points)
    return edges[:-1] / HOUR, counts / np.diff(edges)
