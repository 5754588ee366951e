# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The question every predictor answers: how slow does each tenant become, if this one joins?

Pure values; knows nothing of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One workload on a shared device.

    ``utilisation`` is the fraction of the device it uses when alone on the whole of it (0..1],
    ``percent`` its share, ``max_slowdown`` its objective (``None`` = no objective).
    """

    name: str
    percent: int
    utilisation: float = 1.0
    max_slowdown: float | None = None


class Predictor(Protocol):
    """Predicts slowdowns against running alone on the whole device."""

    name: str

    def predict(
        self, tenants: Sequence[Tenant], newcomer: Tenant, percent: int
    ) -> tuple[float, ...]:
        """Slowdown of each tenant in order, and of the newcomer at ``percent`` last; >= 1."""
        ...
