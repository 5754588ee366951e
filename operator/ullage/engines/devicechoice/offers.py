# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Offers and recommendations: values without behaviour.

An offer is a number of devices of one type at a price for all of them. It must never carry a price
per device: counts differ between offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never

from ullage.api.reasons import Reason
from ullage.api.words import CostObjective
from ullage.api.words import Source as Source
from ullage.engines.devicechoice.intervals import Interval
from ullage.engines.devicechoice.memory import MemoryVerdict
from ullage.engines.devicechoice.predict import cost_of

RecommendationOutcome = Literal[
    Reason.INSTANCE_SELECTED,
    Reason.ADVICE_ONLY,
    Reason.CAPACITY_DECIDES,
    Reason.NO_FEASIBLE_ACCELERATOR,
]


class ChoiceAim(StrEnum):
    """Quantity that is minimised."""

    COST = "cost"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorOffer:
    """A set of available devices.

    Attributes:
        accelerator: Type.
        gpus: Number of devices.
        placement: Their spread, as named by the pool.
        price_per_hour: Of all of them; ``None`` = not known.
        available: They are available now.
    """

    accelerator: str
    gpus: int
    placement: str = ""
    price_per_hour: float | None = None
    available: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepForecast:
    """A step of the job on an offer.

    Attributes:
        step: Seconds; ``None`` = it was tried and failed.
        source: Measured, declared or estimated.
        anchored: At least one type was measured; false for a roofline alone.
    """

    step: Interval | None
    source: Source
    anchored: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCandidate:
    """An offer with the forecasts of the job on it.

    Attributes:
        offer: The devices.
        forecast: Step time; ``None`` = unknown.
        memory: Verdict on the memory fit.
        unknown: Human-readable reason of an unknown step time, where there is one.
    """

    offer: AcceleratorOffer
    forecast: StepForecast | None
    memory: MemoryVerdict
    unknown: tuple[Reason, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceGoal:
    """The user's aim.

    Attributes:
        objective: ``None`` = given by the caps.
        max_cost: Cap of the whole training's price.
        max_time_s: Cap of its duration.
        gpus: The number of devices that the user's batch was chosen for; other numbers are advice.
            ``None`` = any number.
        delay_per_hour: Cost to the owner of an hour until the end, beside the devices; it counts in
            the aim, and under no cap.
    """

    objective: CostObjective | None = None
    max_cost: float | None = None
    max_time_s: float | None = None
    gpus: int | None = None
    delay_per_hour: float = 0.0

    def aim(self) -> ChoiceAim | None:
        """The minimised quantity; ``None`` = none requested, or capacity decides.

        A cap alone minimises the other quantity; both caps alone minimise cost.
        """
        match self.objective:
            case CostObjective.COST_PER_WORK:
                return ChoiceAim.COST
            case CostObjective.MAKESPAN:
                return ChoiceAim.TIME
            case CostObjective.DEADLINE:
                return None
            case None:
                pass
            case _:
                assert_never(self.objective)
        if self.max_time_s is not None:
            return ChoiceAim.COST
        return ChoiceAim.TIME if self.max_cost is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """One line of the table.

    Attributes:
        offer: The devices.
        total: Seconds of the training; ``None`` = unknown.
        cost: Price of it; ``None`` = unknown.
        source: Source of the step time; ``None`` = none.
        memory: The verdict.
        infeasible: Reason why it is infeasible; ``None`` = feasible.
        hold: Reason why it is advice only; ``None`` = it may be acted upon.
        text: The same, human-readable, with figures.
        delay_per_hour: Cost to the owner of an hour until the end, beside the devices.
    """

    offer: AcceleratorOffer
    total: Interval | None
    cost: float | None
    source: Source | None
    memory: MemoryVerdict
    infeasible: Reason | None = None
    hold: Reason | None = None
    text: str = ""
    delay_per_hour: float = 0.0

    def value(self, aim: ChoiceAim) -> float:
        """The minimised value: seconds, or price and delay; infinite where it is unknown."""
        if self.total is None or (aim is ChoiceAim.COST and self.cost is None):
            return float("inf")
        if aim is ChoiceAim.TIME or self.cost is None:
            return self.total.value_s
        return self.cost + cost_of(self.total.value_s, self.delay_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer: a full table and its conclusion.

    Attributes:
        outcome: Result.
        aim: Minimised quantity.
        rows: Every offer: the chosen one, other feasible ones by rank, infeasible ones.
        chosen: Offer to act upon; ``None`` = none.
        best: Best feasible offer, advice included.
        acts: The recommendation may be acted upon: an aim, and more than one type to choose from.
    """

    outcome: RecommendationOutcome
    aim: ChoiceAim | None
    rows: tuple[Priced, ...]
    chosen: Priced | None
    best: Priced | None
    acts: bool
