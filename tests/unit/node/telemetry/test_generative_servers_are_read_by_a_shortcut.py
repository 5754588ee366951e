# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage_node.telemetry.histograms import (
    HistogramUnusable,
    LatencyHistogram,
    keep_line,
    read_histogram,
    wanted_names,
)

LLAMA = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 900
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
"""


def a_histogram(name: str, within: int, more: int, labels: str = 'model_name="m"') -> str:
    return "\n".join(
        [
            f"# TYPE {name} histogram",
            f'{name}_bucket{{le="0.1",{labels}}} {within}',
            f'{name}_bucket{{le="+Inf",{labels}}} {within + more}',
            f"{name}_count{{{labels}}} {within + more}",
            f"{name}_sum{{{labels}}} 1.5",
        ]
    )


def read(metric: str, *parts: str) -> LatencyHistogram:
    names = wanted_names(metric)
    lines = "\n".join(parts).splitlines()
    return read_histogram([line for line in lines if keep_line(line, names)], metric)


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_ttft_counts_first_tokens_and_requests(server: str) -> None:
    page = a_histogram(f"{server}:time_to_first_token_seconds", 8, 2)
    seen = read("ttft", page, a_histogram(f"{server}:e2e_request_latency_seconds", 3, 4))
    assert (seen.count, seen.requests, seen.bounds[0]) == (10, 10, 0.1)


@pytest.mark.parametrize(
    "name",
    [
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
    ],
)
def test_itl_counts_tokens_and_the_requests_behind_them(name: str) -> None:
    whole = a_histogram(f"{name.partition(':')[0]}:e2e_request_latency_seconds", 3, 4)
    seen = read("itl", whole, a_histogram(name, 500, 100))
    assert (seen.count, seen.requests) == (600, 7)


def test_of_a_renamed_histogram_the_new_name_counts_once() -> None:
    """A vLLM that still shows what it has renamed serves both."""
    old = a_histogram("vllm:time_per_output_token_seconds", 500, 100)
    seen = read("itl", old, a_histogram("vllm:inter_token_latency_seconds", 400, 50))
    assert seen.count == 450


def test_a_histogram_that_is_called_so_goes_first() -> None:
    page = a_histogram("vllm:time_to_first_token_seconds", 8, 2)
    assert read("ttft", page, a_histogram("ttft", 1, 0)).count == 1


@pytest.mark.parametrize("shortcut", ["ttft", "itl"])
def test_a_server_without_such_a_histogram_is_told(shortcut: str) -> None:
    """llama.cpp has counters alone."""
    with pytest.raises(HistogramUnusable, match=f"no histogram that {shortcut} stands for .vllm:"):
        read(shortcut, LLAMA)


def test_a_declared_histogram_without_samples_is_not_there_yet() -> None:
    """SGLang declares its histograms and has samples from the first request on."""
    with pytest.raises(HistogramUnusable, match="stands for"):
        read("ttft", "# TYPE sglang:time_to_first_token_seconds histogram")


def test_a_name_stays_a_name() -> None:
    name = "vllm:time_to_first_token_seconds"
    assert wanted_names(name) == (name,)
    assert read(name, a_histogram(name, 1, 1)).count == 2
