# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the notices, read from the watch when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage_node.notices.watch import AWAY, UNREADABLE, NoticeWatch


class NoticeCollector(Collector):
    """Metrics of notices received, notices in force, and failed polls."""

    def __init__(self, watch: NoticeWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        watch = self._watch
        heard = CounterMetricFamily(
            "ullage_node_interruption_notices",
            "Interruption notices of the provider.",
            labels=["source", "kind"],
        )
        for (source, kind), count in sorted(watch.heard.items()):
            heard.add_metric([source, kind], count)
        yield heard
        yield GaugeMetricFamily(
            "ullage_node_interrupted",
            "1 = a notice is in force on the node.",
            value=float(watch.current is not None),
        )
        failures = CounterMetricFamily(
            "ullage_node_notice_failures",
            "Questions to the metadata endpoint without a readable answer.",
            labels=["result"],
        )
        for result in (AWAY, UNREADABLE):
            failures.add_metric([result], watch.failures[result])
        yield failures
