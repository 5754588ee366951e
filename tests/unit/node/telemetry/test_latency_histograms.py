# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage_node.telemetry.histograms import (
    DEFAULT_METRIC,
    HistogramUnusable,
    LatencyHistogram,
    keep_line,
    quantile,
    read_histogram,
    wanted_names,
)
from ullage_run import requests
from ullage_run.requests import RequestHistogram

VLLM = """\
# HELP vllm:inter_token_latency_seconds Histogram of inter-token latency.
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="m"} 10.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.1",model_name="m"} 90.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 100.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 5.0
vllm:inter_token_latency_seconds_bucket{engine="1",le="0.01",model_name="m"} 0.0
vllm:inter_token_latency_seconds_bucket{engine="1",le="0.1",model_name="m"} 50.0
vllm:inter_token_latency_seconds_bucket{engine="1",le="+Inf",model_name="m"} 50.0
vllm:inter_token_latency_seconds_count{engine="1",model_name="m"} 50.0
vllm:inter_token_latency_seconds_sum{engine="1",model_name="m"} 2.5
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 4.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} 8.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 4.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1.0
"""
TRITON = """\
# HELP nv_inference_request_duration_us Cumulative inference request duration in microseconds
# TYPE nv_inference_request_duration_us counter
nv_inference_request_duration_us{model="m",version="1"} 123456
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_count{model="m"} 3
nv_inference_first_response_histogram_ms_sum{model="m"} 90
nv_inference_first_response_histogram_ms_bucket{model="m",le="10"} 1
nv_inference_first_response_histogram_ms_bucket{model="m",le="100"} 3
nv_inference_first_response_histogram_ms_bucket{model="m",le="+Inf"} 3
"""


def a_page(**buckets: float) -> str:
    lines = [f"# TYPE {DEFAULT_METRIC} histogram"]
    lines += [f'{DEFAULT_METRIC}_bucket{{le="{le}"}} {count}' for le, count in buckets.items()]
    return "\n".join(lines)


def read(text: str, metric: str = DEFAULT_METRIC) -> LatencyHistogram:
    names = wanted_names(metric)
    return read_histogram([line for line in text.splitlines() if keep_line(line, names)], metric)


def test_the_page_of_the_runtime_library_is_understood() -> None:
    assert requests.METRIC == DEFAULT_METRIC
    server = RequestHistogram()
    for seconds in (0.002, 0.03, 0.03, 100.0):
        server.observe(seconds)
    seen = read(server.metrics_text())
    assert (seen.count, seen.requests) == (4, 4)
    assert math.isclose(seen.sum_seconds, 100.062)
    assert math.isinf(seen.bounds[-1])


def test_label_sets_add_up_and_tokens_are_not_requests() -> None:
    seen = read(VLLM, "vllm:inter_token_latency_seconds")
    assert seen.bounds == (0.01, 0.1, math.inf)
    assert seen.cumulative == (10, 140, 150)
    assert (seen.requests, seen.sum_seconds) == (4, 7.5)


def test_a_histogram_in_milliseconds_says_so_in_its_name() -> None:
    seen = read(TRITON, "nv_inference_first_response_histogram_ms")
    assert seen.bounds == pytest.approx((0.01, 0.1, math.inf))
    assert seen.mean_micros() == 30_000


def test_a_counter_is_refused_with_what_would_help() -> None:
    with pytest.raises(HistogramUnusable) as error:
        read(TRITON, "nv_inference_request_duration_us")
    assert str(error.value) == (
        "nv_inference_request_duration_us is a counter, a sum that only grows: no percentile can "
        "be made of it; set slo.metric to a histogram (there are: "
        "nv_inference_first_response_histogram_ms)"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the page has no histogram"),
        (a_page(**{"+Inf": 3}), r"no bucket but \+Inf"),
        (a_page(**{"0.1": 5, "+Inf": 3}), "buckets do not rise"),
        (a_page(**{"0.1": math.nan, "+Inf": 3}), "one of its values is no count"),
        (a_page(**{"0.1": -1, "+Inf": 3}), "one of its values is no count"),
        (a_page(**{"soon": 1, "+Inf": 3}), "a bound that is no number"),
        (a_page(**{str(i): i for i in range(600)}, **{"+Inf": 600}), "more than 512 buckets"),
        (a_page(**{"0.1": 1e16, "+Inf": 1e16}), "larger than any count"),
        (a_page(**{"0.1": 1, "+Inf": 1}) + f"\n{DEFAULT_METRIC}_sum 1e300", "larger than any"),
        (a_page(**{"-1": 1, "+Inf": 1}), "a bound that is no latency"),
        (a_page(**{"-Inf": 1, "+Inf": 1}), "a bound that is no latency"),
        (a_page(**{"1e300": 1, "+Inf": 1}), "a bound that is no latency"),
        (f"{DEFAULT_METRIC}_bucket{{le=0.1}} x\n", "its lines cannot be parsed"),
        (f"# TYPE {DEFAULT_METRIC} summary\n", "is a summary"),
    ],
)
def test_garbage_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(HistogramUnusable, match=why):
        read(text)


def test_a_page_without_the_last_bucket_has_the_count_instead() -> None:
    seen = read(a_page(**{"0.1": 2}) + f"\n{DEFAULT_METRIC}_count 5\n{DEFAULT_METRIC}_sum 1\n")
    assert seen.cumulative == (2, 5)


def a_histogram(
    *cumulative: float, bounds: tuple[float, ...] = (0.1, 0.2, 0.4)
) -> LatencyHistogram:
    return LatencyHistogram(
        bounds=(*bounds, math.inf),
        cumulative=cumulative,
        sum_seconds=cumulative[-1] / 10,
        requests=cumulative[-1],
    )


def test_the_difference_of_two_pages() -> None:
    made = a_histogram(10, 30, 40, 40).since(a_histogram(10, 10, 10, 10))
    assert made is not None
    assert made.cumulative == (0, 20, 30, 30)
    assert quantile(made, 0.5) == quantile(a_histogram(0, 20, 30, 30), 0.5)


@pytest.mark.parametrize(
    "later",
    [
        a_histogram(0, 1, 2, 3),
        a_histogram(11, 11, 11, 50),
        a_histogram(10, 20, 40, 40, bounds=(0.1, 0.2, 0.5)),
    ],
    ids=["fewer", "one bucket fewer", "other bounds"],
)
def test_a_server_that_began_again_gives_no_difference(later: LatencyHistogram) -> None:
    assert later.since(a_histogram(10, 20, 40, 40)) is None


def test_a_percentile_is_linear_inside_its_bucket() -> None:
    # 10 below 0.1, 80 from 0.1 to 0.2, 10 from 0.2 to 0.4
    seen = a_histogram(10, 90, 100, 100)
    found = {f: quantile(seen, f) for f in (0.05, 0.1, 0.5, 0.9, 0.95)}
    micros = {f: one.micros for f, one in found.items() if one}
    assert micros == {0.05: 50_000, 0.1: 100_000, 0.5: 150_000, 0.9: 200_000, 0.95: 300_000}
    assert not any(one.floor for one in found.values() if one)


def test_beyond_the_last_bound_only_a_floor_is_known() -> None:
    found = quantile(a_histogram(0, 0, 50, 100), 0.99)
    assert found is not None
    assert (found.micros, found.floor) == (400_000, True)


def test_without_observations_there_is_no_percentile() -> None:
    assert quantile(a_histogram(0, 0, 0, 0), 0.99) is None


@given(
    st.lists(st.floats(0.0006, 59.0), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99])
)
def test_a_percentile_lies_in_the_bucket_of_the_true_one(
    values: list[float], fraction: float
) -> None:
    server = RequestHistogram()
    for value in values:
        server.observe(value)
    found = quantile(read(server.metrics_text()), fraction)
    rank = max(math.ceil(fraction * len(values)), 1)
    true = sorted(values)[rank - 1]
    bounds = (0.0, *requests.BOUNDS_SECONDS)
    high = next(bound for bound in bounds if bound >= true)
    low = bounds[bounds.index(high) - 1]
    assert found is not None
    assert low * 1e6 - 1 <= found.micros <= high * 1e6 + 1


LINE = st.one_of(
    st.text(max_size=40),
    st.text(alphabet='{}"=,\\\n #+Inf0.1e_lebucket', max_size=40),
    st.builds('_bucket{{le="{}"}} {}'.format, st.floats(), st.floats()),
    st.builds("_count{}".format, st.text(max_size=8)),
    st.builds("_{} {}".format, st.sampled_from(["count", "sum"]), st.floats(min_value=0)),
)
API_MOST = 2**63 - 1


@pytest.mark.slow
@given(st.lists(LINE, max_size=8))
@example(['_bucket{le="1e305"} 9'])
@example(['_bucket{le="1"} 9', "_sum 1e308", "_sum 1e308"])
@example(['_bucket{le="1"} 1e308', '_bucket{le="1"} 1e308'])
def test_whatever_a_tenant_serves_is_a_histogram_or_a_sentence(lines: list[str]) -> None:
    text = "\n".join(DEFAULT_METRIC + line for line in lines)
    try:
        seen = read(text)
    except HistogramUnusable:
        return
    found = quantile(seen, 0.99)
    assert found is None or 0 <= found.micros <= API_MOST
    assert 0 <= round(seen.requests * 1000) <= API_MOST
    if seen.count >= 1:
        assert 0 <= seen.mean_micros() <= API_MOST


@pytest.mark.parametrize(
    "name",
    ["\x1b[31mred", "https://example.org/x", "a" * 200, "запрос", "-x", "x;y", "a{b}", "Pay-now!"],
)
def test_what_is_no_name_of_a_metric_is_not_repeated_to_people(name: str) -> None:
    page = f"# TYPE {name} histogram\n# TYPE a_real_one histogram\n# TYPE {DEFAULT_METRIC} {name}\n"
    with pytest.raises(HistogramUnusable) as error:
        read(page)
    assert str(error.value) == (
        f"{DEFAULT_METRIC} is of a type that is none: no percentile can be made of it; set"
        " slo.metric to a histogram (there are: a_real_one)"
    )
