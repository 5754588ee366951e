# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metric families from records of figures: a field's metadata name the metric of its value.

A field made by :func:`gauge` or :func:`counter` has a number, or numbers by label (a text, or a
tuple of them with several labels); a field of a histogram is exported unchanged; any other field is
a record of figures itself. Shared by operator and node agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

METRIC: Final = "metric"
"""Key of a field's :class:`Family` in its metadata."""


@dataclass(frozen=True, slots=True)
class Family:
    """Kind, name, text and labels of one metric."""

    kind: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...] = ()

    def of(self, value: float | Mapping[Any, float]) -> Metric:
        """The family with its samples."""
        if not isinstance(value, Mapping):
            return self.kind(self.name, self.text, value=float(value))
        family = self.kind(self.name, self.text, labels=self.labels)
        for key, number in sorted(value.items()):
            labels = key if isinstance(key, tuple) else (key,)
            family.add_metric([str(label) for label in labels], float(number))
        return family


def gauge(name: str, text: str, *labels: str) -> Any:
    """A field whose value may fall; 0, or nothing by label, until it is set."""
    return _declared(Family(GaugeMetricFamily, name, text, labels))


def counter(name: str, text: str, *labels: str) -> Any:
    """A field whose value only grows; the name is without ``_total``."""
    return _declared(Family(CounterMetricFamily, name, text, labels))


def _declared(family: Family) -> Any:
    metadata = {METRIC: family}
    if family.labels:
        return field(default_factory=dict, metadata=metadata)
    return field(default=0, metadata=metadata)


def families(figures: Any) -> Iterator[Metric]:
    """The families of a record of figures."""
    for item in fields(figures):
        yield from field_families(item, getattr(figures, item.name))


class FiguresCollector(Collector):
    """Gathers a record of figures at scrape time, so that nothing can drift from its source."""

    def __init__(self, gather: Callable[[], object]) -> None:
        self._gather = gather

    def collect(self) -> Iterator[Metric]:
        """The families as of now."""
        return families(self._gather())


def field_families(item: Field[Any], value: Any) -> Iterator[Metric]:
    """The families of one field of a record of figures."""
    if isinstance(value, Histogram):
        yield from _histogram_family(value)
    elif METRIC in item.metadata:
        yield item.metadata[METRIC].of(value)
    else:
        yield from families(value)


def _histogram_family(histogram: Histogram) -> Iterator[Metric]:
    """The histogram's family, without ``_created``: the process's start is already exported."""
    for family in histogram.collect():
        family.samples = [
            sample for sample in family.samples if not sample.name.endswith("_created")
        ]
        yield family
