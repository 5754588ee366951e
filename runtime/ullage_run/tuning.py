# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The program's side of a TuningJob's trial: its parameters, and its reported values.

::

    from ullage_run import tuning

    rate = tuning.number("lr", 0.01)
    for epoch in range(first, tuning.epochs(27) + 1):
        train(rate)
        save()
        tuning.report(epoch, accuracy)

Values go into the container's termination message, which kubelet reads when the container has
ended. So the operator has all values of a trial that ended, and none of a killed one, which resumes
from its checkpoint. Standard library only; outside a trial reports do nothing.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import sys
from collections.abc import Mapping
from typing import Final, SupportsFloat, SupportsIndex

from ullage.api.environment import (
    ENV_PARAMETER,
    ENV_TRIAL,
    ENV_TRIAL_EPOCHS,
    ENV_TRIAL_METRIC,
    ENV_TRIAL_REPORT,
    MOST_REPORT_BYTES,
    TRIAL_REPORT_HEADER,
)

MOST_EPOCHS: Final = 64
"""Most epochs of a report, the newest ones."""


def trial() -> str:
    """Name of the trial, the same after each resume: use it as the checkpoint directory."""
    return os.environ.get(ENV_TRIAL, "")


def epochs(default: int) -> int:
    """The last epoch of the program.

    Args:
        default: Value outside a trial.
    """
    try:
        return int(os.environ[ENV_TRIAL_EPOCHS])
    except (KeyError, ValueError):
        return default


def parameters() -> dict[str, str]:
    """All parameters of the trial, as text."""
    return {
        name.removeprefix(ENV_PARAMETER): value
        for name, value in os.environ.items()
        if name.startswith(ENV_PARAMETER)
    }


def text(name: str, default: str) -> str:
    """A parameter.

    Args:
        name: As in the search space.
        default: Value outside a trial.
    """
    return os.environ.get(ENV_PARAMETER + name, default)


def number(name: str, default: float) -> float:
    """A numeric parameter.

    Args:
        name: As in the search space.
        default: Value outside a trial.

    Raises:
        ValueError: it is not a number.
    """
    return float(text(name, repr(default)))


def whole(name: str, default: int) -> int:
    """An integer parameter.

    Args:
        name: As in the search space.
        default: Value outside a trial.

    Raises:
        ValueError: it is not a number.
    """
    return int(text(name, str(default)))


class Reporter:
    """The writing end of a trial's report.

    Args:
        path: The file; ``None`` or empty makes every call do nothing.
        metric: Name of the value among several.
    """

    def __init__(self, path: str | None, metric: str = "") -> None:
        self._path = path
        self._metric = metric
        self._values: dict[int, float] = {}

    def report(
        self, epoch: SupportsIndex, value: SupportsFloat | Mapping[str, SupportsFloat]
    ) -> bool:
        """Report the result of an epoch; for a repeated epoch the last value counts.

        Args:
            epoch: Number of the epoch in the whole training, from 1.
            value: The metric, or several by name, of which the TuningJob's is taken.

        Returns:
            True if accepted. If not, the reason is on standard error, and the trial continues.
        """
        metric = value.get(self._metric) if isinstance(value, Mapping) else value
        if metric is None:
            _complain(f"no metric {self._metric!r} is in the report of epoch {epoch!r}")
            return False
        try:
            number, at = float(metric), operator.index(epoch)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            _complain(f"a report is refused: {error}")
            return False
        if at < 1:
            _complain(f"a report is refused: epochs count from 1, not {at}")
            return False
        self._values[at] = number
        self._values = dict(sorted(self._values.items())[-MOST_EPOCHS:])
        return self._write()

    def _write(self) -> bool:
        if not self._path:
            return False
        lines = [f"{at} {_shown(value)}" for at, value in self._values.items()]
        body = "\n".join((TRIAL_REPORT_HEADER, *lines, "")).encode()
        try:
            # In place: the file is a mount, which cannot be replaced by a rename.
            with open(self._path, "r+b" if os.path.exists(self._path) else "wb") as file:
                file.write(body[:MOST_REPORT_BYTES])
                file.truncate()
        except OSError as error:
            _complain(f"a report could not be written: {error}")
            return False
        return True


def _shown(value: float) -> str:
    return repr(value) if math.isfinite(value) else "nan"


def _complain(why: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"ullage_run.tuning: {why}", file=sys.stderr, flush=True)


_reporter = Reporter(os.environ.get(ENV_TRIAL_REPORT), os.environ.get(ENV_TRIAL_METRIC, ""))
report = _reporter.report
