# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Algorithms of a search by their words: source of parameters, and continuation of trials.

A row is all that an algorithm adds. Decisions use only epochs and values, so that the same results
in the same order lead to the same decisions after every restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ullage.api.words import Goal, TuningAlgorithm
from ullage.engines.tuning.rungs import (
    AsyncHalving,
    SearchAlgorithm,
    StatedTrials,
    SyncHalving,
    budgets,
    for_trials,
    hyperband,
    in_brackets,
)
from ullage.engines.tuning.search_space import (
    Point,
    SearchSpace,
    grid_point,
    grid_size,
    random_point,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTrial:
    """A trial requested by an external client.

    Attributes:
        point: Its parameters; empty where they are refused.
        epochs: Epochs at which it reports; rising.
        refused: Reason why its parameters are not in the search space.
    """

    trial: int
    point: Point
    epochs: tuple[int, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTerms:
    """Space of a search, and the comparison of trials."""

    algorithm: TuningAlgorithm
    space: SearchSpace
    trials: int
    """Requested number of trials; a grid may have fewer."""
    goal: Goal
    seed: int = 0
    max_epochs: int = 1
    min_epochs: int = 1
    eta: int = 3
    points_per_range: int = 3
    stated: tuple[StatedTrial, ...] = ()
    """Trials of an external client, by number."""
    more_to_come: bool = False
    """An external client may add more."""

    @property
    def maximise(self) -> bool:
        """Larger values are better."""
        return self.goal is Goal.MAXIMIZE


Suggest = Callable[[SearchTerms, int], Point]
"""Parameters of a trial, by its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmRow:
    """One algorithm.

    Attributes:
        trials: Number of trials.
        suggest: Parameters of a trial; ``None`` = an external sampler gives them.
        decide: Makes the object that decides which trials continue.
    """

    trials: Callable[[SearchTerms], int]
    suggest: Suggest | None
    decide: Callable[[SearchTerms], SearchAlgorithm]


def _as_asked(terms: SearchTerms) -> int:
    return terms.trials


def _at_random(terms: SearchTerms, trial: int) -> Point:
    return random_point(terms.space, terms.seed, trial)


def _points(terms: SearchTerms) -> int:
    """Trials of a grid: its points, up to the requested number of trials.

    Raises:
        SearchSpaceError: there are more points than a grid may have.
    """
    return min(terms.trials, grid_size(terms.space, terms.points_per_range))


def _halving(terms: SearchTerms, trials: int, epochs: tuple[int, ...]) -> SyncHalving:
    return SyncHalving(
        members=tuple(range(trials)), epochs=epochs, eta=terms.eta, maximise=terms.maximise
    )


def _to_the_end(terms: SearchTerms) -> SearchAlgorithm:
    """One rung: every trial goes to its last epoch."""
    return _halving(terms, trials_of(terms), (terms.max_epochs,))


def _in_rungs(terms: SearchTerms) -> SearchAlgorithm:
    epochs = budgets(terms.min_epochs, terms.max_epochs, terms.eta)
    return _halving(terms, terms.trials, epochs)


def _in_hyperband(terms: SearchTerms) -> SearchAlgorithm:
    shapes = for_trials(hyperband(terms.max_epochs, terms.eta), terms.trials)
    return in_brackets(shapes, terms.eta, maximise=terms.maximise)


def _in_asha(terms: SearchTerms) -> SearchAlgorithm:
    return AsyncHalving(
        members=tuple(range(terms.trials)),
        epochs=budgets(terms.min_epochs, terms.max_epochs, terms.eta),
        eta=terms.eta,
        maximise=terms.maximise,
    )


def _stated(terms: SearchTerms, trial: int) -> Point:
    return next((stated.point for stated in terms.stated if stated.trial == trial), {})


ALGORITHMS: Final[Mapping[TuningAlgorithm, AlgorithmRow]] = MappingProxyType(
    {
        TuningAlgorithm.RANDOM: AlgorithmRow(
            trials=_as_asked, suggest=_at_random, decide=_to_the_end
        ),
        TuningAlgorithm.GRID: AlgorithmRow(
            trials=_points,
            suggest=lambda terms, trial: grid_point(terms.space, terms.points_per_range, trial),
            decide=_to_the_end,
        ),
        TuningAlgorithm.SYNC_HALVING: AlgorithmRow(
            trials=_as_asked, suggest=_at_random, decide=_in_rungs
        ),
        TuningAlgorithm.HYPERBAND: AlgorithmRow(
            trials=_as_asked, suggest=_at_random, decide=_in_hyperband
        ),
        TuningAlgorithm.ASHA: AlgorithmRow(trials=_as_asked, suggest=_at_random, decide=_in_asha),
        TuningAlgorithm.TPE: AlgorithmRow(trials=_as_asked, suggest=None, decide=_to_the_end),
        TuningAlgorithm.EXTERNAL: AlgorithmRow(
            trials=lambda terms: len(terms.stated),
            suggest=_stated,
            decide=lambda terms: StatedTrials(
                epochs={stated.trial: stated.epochs for stated in terms.stated}
            ),
        ),
    }
)
"""Check that every word has a row."""


def trials_of(terms: SearchTerms) -> int:
    """Trials of the whole search."""
    return ALGORITHMS[terms.algorithm].trials(terms)


def parameters_of(terms: SearchTerms, trial: int) -> Point | None:
    """Parameters of a trial; ``None`` = an external sampler gives them.

    Args:
        terms: Of the search.
        trial: From 0.
    """
    suggest = ALGORITHMS[terms.algorithm].suggest
    return None if suggest is None else suggest(terms, trial)


def decider_of(terms: SearchTerms) -> SearchAlgorithm:
    """The algorithm that decides which trials continue, before any result."""
    return ALGORITHMS[terms.algorithm].decide(terms)
