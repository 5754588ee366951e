# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""When the work of a window is due, and what it cost the CPU; every workload goes by it."""

from __future__ import annotations

import random
import resource
import time

from bench.gpu.orders import Order


def arrivals_s(order: Order) -> list[float]:
    """Scheduled arrivals of an open loop from the start of the window: Poisson, drawn before."""
    rng = random.Random(f"arrivals {order.seed} {order.place}")
    found, at_s = [], 0.0
    while at_s < order.warm_s + order.measured_s:
        at_s += rng.expovariate(order.rate)
        found.append(at_s)
    return found


def cpu_s() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def wait_until(at_s: float) -> None:
    """Sleep until a point of the monotonic clock."""
    while (left_s := at_s - time.monotonic()) > 0:
        time.sleep(left_s)
