# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters in text form: types and numbers in a line, or a table of nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ullage_simulate.table import header_of, opened, rows
from ullage_simulate.trace import Fleet, JobTraceError

STUDY_PRICES: Final[Mapping[str, float]] = MappingProxyType(
    {"k80": 0.45, "p100": 1.46, "v100": 2.48}
)
"""Dollars per hour from Gavel's study (OSDI 2020), for the types of the built-in tables."""

_COLUMNS: Final = (("type", "devices"), ("gpu_model", "gpu_capacity_num"), ("model", "gpu"))
"""Columns of tables of nodes: a user's own, Alibaba's of 2026, Alibaba's of 2023 (openb)."""
_MOST_DEVICES: Final = 10**7


def parsed_fleet(text: str, prices: Mapping[str, float], per_node: int) -> Fleet:
    """A cluster from ``v100=8,p100=16``, or from the path of a table of nodes.

    A table has the columns ``type`` and ``devices``, or those of Alibaba's: ``gpu_model`` and
    ``gpu_capacity_num``, or ``model`` and ``gpu``.

    Raises:
        TraceError: it is neither.
    """
    if "=" not in text:
        return _from_table(Path(text), prices, per_node)
    devices: dict[str, int] = {}
    for part in text.split(","):
        kind, _, count = part.partition("=")
        if not kind.strip() or not _is_count(count.strip()):
            raise JobTraceError(f"--cluster {part!r}: write a type and a number, as v100=8")
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
            raise JobTraceError(
                f"--price {text!r}: write a type and dollars, as v100=2.48"
            ) from error
        if not 0 <= prices[kind] < math.inf:
            raise JobTraceError(f"--price {text!r}: a price is a finite number, 0 or more")
    return prices


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 9 and int(text) <= _MOST_DEVICES


def _from_table(path: Path, prices: Mapping[str, float], per_node: int) -> Fleet:
    devices: Counter[str] = Counter()
    text = opened(path)
    columns = next((pair for pair in _COLUMNS if set(pair) <= set(header_of(text))), None)
    if columns is None:
        known = "; ".join(" and ".join(pair) for pair in _COLUMNS)
        raise JobTraceError(f"{path.name}: line 1: a table of nodes needs the columns {known}")
    type_column, count_column = columns
    for row in rows(path.name, text):
        count = row.whole(count_column, "a number of devices, as 8", least=0)
        if count and not row.text(type_column):
            raise row.wrong(type_column, "is empty: name the type of the devices")
        if count:
            devices[row.text(type_column)] += count
    ordered = dict(devices.most_common())
    return Fleet(devices=ordered, prices=_known(ordered, prices), per_node=per_node)


def _known(devices: Mapping[str, int], prices: Mapping[str, float]) -> dict[str, float]:
    """Given prices, else those of the study where it has one for every type."""
    if prices or not all(kind in STUDY_PRICES for kind in devices):
        return dict(prices)
    return {kind: STUDY_PRICES[kind] for kind in devices}
