# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Policies that do not know which type is quicker: the baseline that every comparison prints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ullage.engines.allocation.model import Problem, Throughputs


def all_alike(problem: Problem) -> Problem:
    """Every allowed type runs a job at speed 1: for max-min objectives."""
    rates = np.where(problem.throughputs.rates > 0, 1.0, 0.0)
    return replace(problem, throughputs=Throughputs(rates=rates))


def like_type(problem: Problem, type_name: str) -> Problem:
    """Every allowed type runs a job at its speed on one type: for objectives that count steps.

    A job that cannot run on that type is taken at its best speed.

    Args:
        problem: Jobs, types and speeds (steps/s).
        type_name: The type whose speeds count.

    Raises:
        ValueError: there is no such type.
    """
    rates = problem.throughputs.rates
    column = [kind.name for kind in problem.types].index(type_name)
    common = np.where(rates[:, column] > 0, rates[:, column], rates.max(axis=1))
    alike = np.where(rates > 0, common[:, None], 0.0)
    return replace(problem, throughputs=Throughputs(rates=alike))
