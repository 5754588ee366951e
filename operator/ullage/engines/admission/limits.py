# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of hard limits, stated once: for one device, and for all devices at a time.

Every line holds for whole numbers and, unchanged, for columns with one entry per device, so that
the operator's search over thousands of devices and the last word on one of them cannot differ. A
shortfall is positive where the limit is broken; its size tells which device misses by least.
It must never round in favour of a newcomer. The node agent asks about single devices and has no
numpy: it is loaded with the first column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

N = TypeVar("N", int, "Ints")

WHOLE_PERCENT: Final = 100


def memory_of_share_mib(device_mib: N, percent: N | int) -> N:
    """Memory that goes with a share, its contexts included.

    Args:
        device_mib: Memory of the device, MiB.
        percent: Share of the device, 0..100.

    Returns:
        MiB, rounded down.
    """
    return device_mib * percent // WHOLE_PERCENT


def with_contexts_mib(memory_mib: int, contexts: int, overhead_mib: N) -> N:
    """Memory that a tenant takes which may allocate so much beside its contexts.

    Args:
        memory_mib: Limit without contexts, MiB.
        contexts: Contexts that it may open.
        overhead_mib: Memory of one context, MiB.

    Returns:
        MiB.
    """
    return memory_mib + contexts * overhead_mib


def contexts_short(used: N, more: int, limit: N) -> N:
    """Contexts that are missing when ``more`` are opened.

    Args:
        used: Contexts that residents may open.
        more: Contexts that the newcomer may open.
        limit: Most contexts of the device.
    """
    return used + more - limit


def percent_short(used: N, least: int, limit: int) -> N:
    """Points by which the least share carries the sum of shares over the limit.

    Args:
        used: Sum of the residents' shares, percent.
        least: Least share of the newcomer, percent.
        limit: Most that shares may sum to, percent.
    """
    return used + least - limit


def memory_short_mib(asked: N, free: N, contexts_mib: N) -> N:
    """Memory that is missing for what is asked, contexts included.

    What is asked must hold at least one MiB beside the contexts: a share that is smaller than its
    own contexts falls short on any device.

    Args:
        asked: Memory asked for with contexts, MiB.
        free: Memory that no resident holds, MiB.
        contexts_mib: Part of ``asked`` that the contexts take, MiB.

    Returns:
        MiB; positive where the limit is broken.
    """
    return larger(asked - free, contexts_mib + 1 - asked)


def share_that_fits(device_mib: N, free_mib: N) -> N:
    """Largest p with floor(device * p / 100) <= free, in percent; not bounded by 100.

    Args:
        device_mib: Memory of the device, MiB.
        free_mib: Memory that no resident holds, MiB.

    Returns:
        Percent of the device (derived).
    """
    return ((free_mib + 1) * WHOLE_PERCENT - 1) // larger(device_mib, 1)


def larger(one: N, other: N | int) -> N:
    """The larger of two, entry by entry.

    Args:
        one: A number, or a column with one entry per device.
        other: A number, or a column of the same shape.
    """
    if isinstance(one, int):
        return max(one, other)
    import numpy as np

    return np.maximum(one, other)


def smaller(one: N, other: N | int) -> N:
    """The smaller of two, entry by entry.

    Args:
        one: A number, or a column with one entry per device.
        other: A number, or a column of the same shape.
    """
    if isinstance(one, int):
        return min(one, other)
    import numpy as np

    return np.minimum(one, other)
