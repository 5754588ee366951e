# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters as people write them: types and numbers in a line, or a table of nodes."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ullage.simulate.speeds import opened
from ullage.simulate.trace import Fleet, TraceError

STUDY_PRICES: Final[Mapping[str, float]] = MappingProxyType(
    {"k80": 0.45, "p100": 1.46, "v100": 2.48}
)
"""Dollars per hour that Gavel's study (OSDI 2020) takes, for the types of the built-in tables."""


def parsed_fleet(text: str, prices: Mapping[str, float], per_node: int) -> Fleet:
    """A cluster from ``v100=8,p100=16``, or from the path of a table of nodes.

    A table has the columns ``gpu_model`` and ``gpu_capacity_num`` (as Alibaba's has), or ``type``
    and ``devices``.

    Raises:
        TraceError: it is neither.
    """
    if "=" not in text:
        return _from_table(Path(text), prices, per_node)
    devices: dict[str, int] = {}
    for part in text.split(","):
        kind, _, count = part.partition("=")
        if not kind.strip() or not count.strip().isdigit():
            raise TraceError(f"--cluster {part!r}: write a type and a number, as v100=8")
        devices[kind.strip()] = devices.get(kind.strip(), 0) + int(count)
    return Fleet(devices=devices, prices=_known(devices, prices), per_node=per_node)


def parsed_prices(texts: Sequence[str]) -> dict[str, float]:
    """Prices from ``v100=2.48`` each.

    Raises:
        TraceError: one is no price.
    """
    prices: dict[str, float] = {}
    for text in texts:
        kind, _, price = text.partition("=")
        try:
            prices[kind] = float(price)
        except ValueError as error:
            raise TraceError(f"--price {text!r}: write a type and dollars, as v100=2.48") from error
        if prices[kind] < 0:
            raise TraceError(f"--price {text!r}: a price is 0 or more")
    return prices


def _from_table(path: Path, prices: Mapping[str, float], per_node: int) -> Fleet:
    devices: Counter[str] = Counter()
    for number, line in enumerate(csv.DictReader(io.StringIO(opened(path))), start=2):
        try:
            kind = line.get("type") or line["gpu_model"]
            devices[kind] += int(line.get("devices") or line["gpu_capacity_num"])
        except (KeyError, ValueError, TypeError) as error:
            raise TraceError(
                f"{path}: line {number}: gpu_model and gpu_capacity_num are needed ({error})"
            ) from error
    ordered = dict(devices.most_common())
    return Fleet(devices=ordered, prices=_known(ordered, prices), per_node=per_node)


def _known(devices: Mapping[str, int], prices: Mapping[str, float]) -> dict[str, float]:
    """Given prices, else those of the study where it has one for every type."""
    if prices or not all(kind in STUDY_PRICES for kind in devices):
        return dict(prices)
    return {kind: STUDY_PRICES[kind] for kind in devices}
