# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a table wants one number, and admission knows a law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def point(mean: Floats, sd: Floats) -> Floats:
    """Slowdown to name where one number is asked for: >= 1, least expected relative error.

    The median of a log-normal law weighted by 1/y is exp(mean - sd^2) (derived).

    Args:
        mean: Means of log slowdown, any shape.
        sd: Standard deviations of log slowdown, in the same shape.

    Returns:
        Slowdowns, in the same shape.
    """
    out: Floats = np.exp(np.maximum(mean - sd**2, 0.0))
    return out
