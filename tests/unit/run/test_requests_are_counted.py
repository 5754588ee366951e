# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import math
import os
import threading

from prometheus_client.parser import text_string_to_metric_families

import ullage_run
from ullage_run.requests import BOUNDS_SECONDS, METRIC, RequestHistogram


def read(text: str) -> dict[str, float]:
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type) == (METRIC, "histogram")
    return {
        f"{sample.name}{sample.labels.get('le', '')}".removeprefix(METRIC): sample.value
        for sample in family.samples
    }


def test_every_request_falls_into_its_bucket() -> None:
    histogram = RequestHistogram(bounds_seconds=(0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7):
        histogram.observe(seconds)
    seen = read(histogram.metrics_text())
    assert [seen["_bucket0.1"], seen["_bucket1.0"], seen["_bucket+Inf"]] == [2, 3, 4]
    assert seen["_count"] == 4
    assert math.isclose(seen["_sum"], 7.65)


def test_what_is_no_time_is_left_out_and_never_raises() -> None:
    histogram = RequestHistogram()
    for junk in (-1.0, math.nan, math.inf, None, "soon", 10**400):
        histogram.observe(junk)  # type: ignore[arg-type]
    assert read(histogram.metrics_text())["_count"] == 0


def test_threads_lose_nothing() -> None:
    histogram = RequestHistogram()

    def work() -> None:
        for _ in range(2000):
            histogram.observe(0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(histogram.metrics_text())["_count"] == 8000


def test_neighbouring_bounds_are_close_enough_for_a_percentile() -> None:
    ratios = [high / low for low, high in itertools.pairwise(BOUNDS_SECONDS)]
    assert min(ratios) > 1
    assert all(ratio <= 2 for ratio in ratios[:-3])


def test_a_forked_child_counts_for_itself() -> None:
    ullage_run.requests.observe(0.01)
    pid = os.fork()
    if pid == 0:
        ullage_run.requests.observe(0.01)
        os._exit(int(read(ullage_run.requests.metrics_text())["_count"]))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
