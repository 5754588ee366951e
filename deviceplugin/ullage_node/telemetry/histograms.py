# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Latency histograms of serving pods: parses a page, and takes the difference of two pages.

Pure: text in, counts and percentiles out. A percentile always comes from the difference of two
pages, never from an average of averages; if the buckets are insufficient, the result is an error
with a text for the user, never a guess. The page is the tenant's own claim.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.observations import INTER_TOKEN, TIME_TO_FIRST_TOKEN
from ullage_node.times import BUCKET_MOST_S, LATENCY_SUM_MOST_S

DEFAULT_METRIC: Final = "ullage_request_seconds"
"""Histogram of the runtime library (``ullage_run.requests``)."""
SHORTCUTS: Final[Mapping[str, tuple[str, ...]]] = {
    TIME_TO_FIRST_TOKEN: ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    INTER_TOKEN: (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
    ),
}
"""Time to first token and inter-token latency by their names in generative servers: vLLM since 0.11
(before it ``time_per_output_token_seconds``), SGLang. The first one found on a page is used.
"""
REQUESTS_OF: Final[Mapping[str, str]] = {
    "vllm:inter_token_latency_seconds": "vllm:e2e_request_latency_seconds",
    "vllm:time_per_output_token_seconds": "vllm:e2e_request_latency_seconds",
    "vllm:request_time_per_output_token_seconds": "vllm:e2e_request_latency_seconds",
    "sglang:inter_token_latency_seconds": "sglang:e2e_request_latency_seconds",
}
"""Histograms that count tokens, each with the one that counts requests of the same server."""
MOST_BUCKETS: Final = 512
COUNT_MOST: Final = 2.0**53
"""Beyond it a float cannot count by ones."""
NAMED_MOST: Final = 3
NAME_LONGEST: Final = 80
_NAME: Final = re.compile(rf"[A-Za-z_:][A-Za-z0-9_:]{{0,{NAME_LONGEST - 1}}}")
"""Name of a metric, safe to quote in Events: the page comes from the user's container."""
_SAMPLE: Final = re.compile(
    r"""([A-Za-z_:][A-Za-z0-9_:]*+)[ \t]*+(?:\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\})?[ \t]*+"""
    r"""(?<=[ \t}])([^ \t]++)"""
)
"""One sample of the text format; text after the value is ignored."""
_LE: Final = re.compile(r"""(?:^|,)[ \t]*+le[ \t]*+=[ \t]*+"([^"\\]*+)\"""")
_SUFFIXES: Final = ("_bucket{", "_sum", "_count", "{", " ")
_UNITS: Final = {
    "_ms": 1e-3,
    "_milliseconds": 1e-3,
    "_us": 1e-6,
    "_microseconds": 1e-6,
}
_OTHER_TYPES: Final = ("gaugehistogram", "info", "stateset", "unknown", "untyped")
_NOT_HISTOGRAMS: Final = {
    "counter": "a counter, a sum that only grows",
    "gauge": "a gauge, one value of the moment",
    "summary": "a summary, whose percentiles cannot be taken over a window",
}


class HistogramUnusable(Exception):
    """No percentile can be computed from a page; the text is stable and names the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Counts since the server started: ``cumulative[i]`` observations of at most ``bounds[i]``.

    The last bound is infinite. ``sum_seconds`` is the sum of all observations, ``requests`` the
    requests behind them (the same as the count, except for histograms of tokens).
    """

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    sum_seconds: float
    requests: float

    @property
    def count(self) -> float:
        """All observations."""
        return self.cumulative[-1]

    def since(self, earlier: LatencyHistogram) -> LatencyHistogram | None:
        """Observations since an earlier page; ``None`` = the server restarted."""
        if self.bounds != earlier.bounds:
            return None
        pairs = zip(self.cumulative, earlier.cumulative, strict=True)
        grown = tuple(now - before for now, before in pairs)
        requests = self.requests - earlier.requests
        seconds = self.sum_seconds - earlier.sum_seconds
        if requests < 0 or seconds < 0 or grown[0] < 0:
            return None
        if any(high < low for low, high in itertools.pairwise(grown)):
            return None
        return LatencyHistogram(
            bounds=self.bounds, cumulative=grown, sum_seconds=seconds, requests=requests
        )

    def mean_micros(self) -> int:
        """Mean of the observations, microseconds; 0 = none."""
        mean_s = self.sum_seconds / self.count if self.count else 0.0
        return round(min(BUCKET_MOST_S, mean_s) * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A percentile; ``floor`` = it lies above the last finite bound, which is its value here."""

    micros: int
    floor: bool = False


def quantile(histogram: LatencyHistogram, fraction: float) -> Quantile | None:
    """The value below which a fraction of the observations lies; ``None`` = none.

    Linear inside the bucket, as in Prometheus' ``histogram_quantile``.
    """
    rank = fraction * histogram.count
    if histogram.count <= 0:
        return None
    below, lower = 0.0, 0.0
    for bound, cumulative in zip(histogram.bounds, histogram.cumulative, strict=True):
        if cumulative >= rank and cumulative > below:
            if math.isinf(bound):
                break
            inside = (rank - below) / (cumulative - below)
            return Quantile(micros=round((lower + (bound - lower) * max(inside, 0.0)) * 1e6))
        below, lower = cumulative, bound
    return Quantile(micros=round(histogram.bounds[-2] * 1e6), floor=True)


def wanted_names(metric: str) -> tuple[str, ...]:
    """The histograms needed to judge one, each once; ``metric`` may be a shortcut."""
    read = (metric, *SHORTCUTS.get(metric, ()))
    counted = (REQUESTS_OF[name] for name in read if name in REQUESTS_OF)
    return tuple(dict.fromkeys((*read, *counted)))


def keep_line(line: str, names: Iterable[str]) -> bool:
    """True if a line of a page is relevant: a sample of these histograms, or any type."""
    return line.startswith("# TYPE ") or any(
        line.startswith(name) and line[len(name) :].startswith(_SUFFIXES) for name in names
    )


def read_histogram(lines: Iterable[str], metric: str) -> LatencyHistogram:
    """The histogram of this name, its label sets added up.

    Args:
        lines: lines of a page; those that :func:`keep_line` drops may be left out.
        metric: name of the histogram, without a suffix, or a shortcut: a histogram of exactly that
            name takes precedence over the shortcut's.

    Raises:
        HistogramUnusable: it is missing, not a histogram, or inconsistent.
    """
    kept = list(lines)
    types = dict(_types(kept))
    if metric in SHORTCUTS:
        metric = _there(metric, kept, types)
        kept = [line for line in kept if keep_line(line, wanted_names(metric))]
    kind = types.get(metric, "histogram")
    if kind != "histogram":
        known = f"of type {kind}" if kind in _OTHER_TYPES else "of a type that is none"
        what = _NOT_HISTOGRAMS.get(kind, known)
        raise HistogramUnusable(
            f"{metric} is {what}: no percentile can be made of it; set slo.metric to a histogram"
            + _named(types)
        )
    buckets: dict[float, float] = {}
    totals: dict[str, float] = {}
    for line in kept:
        if not line or line.startswith("#"):
            continue
        name, labels, value = _sample(metric, line)
        if not math.isfinite(value) or value < 0:
            raise HistogramUnusable(f"{metric}: one of its values is no count")
        totals[name] = totals.get(name, 0.0) + value
        if name == f"{metric}_bucket":
            bound = _bound(metric, labels)
            buckets[bound] = buckets.get(bound, 0.0) + value
    if not buckets:
        raise HistogramUnusable(f"the page has no histogram {metric}" + _named(types))
    return _checked(metric, buckets, totals)


def _there(shortcut: str, lines: Iterable[str], types: Mapping[str, str]) -> str:
    """The name on this page to which a shortcut resolves."""
    names = (shortcut, *SHORTCUTS[shortcut])
    present = [name for name in names if any(line.startswith(f"{name}_bucket{{") for line in lines)]
    if not present:
        listed = ", ".join(names[1:])
        raise HistogramUnusable(
            f"the page has no histogram that {shortcut} stands for ({listed}); name another in "
            "slo.metric" + _named(types)
        )
    return present[0]


def _checked(
    metric: str, buckets: Mapping[float, float], totals: Mapping[str, float]
) -> LatencyHistogram:
    """A validated histogram in seconds with non-decreasing counts."""
    whole = {math.inf: totals.get(f"{metric}_count", 0.0)} | dict(buckets)
    bounds = sorted(whole)
    cumulative = tuple(whole[bound] for bound in bounds)
    if len(bounds) < 2:
        raise HistogramUnusable(f"{metric} has no bucket but +Inf: no percentile can be made of it")
    if len(bounds) > MOST_BUCKETS:
        raise HistogramUnusable(f"{metric} has more than {MOST_BUCKETS} buckets")
    if any(high < low for low, high in itertools.pairwise(cumulative)):
        raise HistogramUnusable(f"{metric}: its buckets do not rise; they must be cumulative")
    unit = next((scale for end, scale in _UNITS.items() if metric.endswith(end)), 1.0)
    seconds = totals.get(f"{metric}_sum", 0.0) * unit
    requests = totals.get(f"{REQUESTS_OF.get(metric, metric)}_count", cumulative[-1])
    if max(cumulative[-1], requests) > COUNT_MOST or seconds > LATENCY_SUM_MOST_S:
        raise HistogramUnusable(f"{metric}: one of its values is larger than any count")
    if bounds[0] < 0 or bounds[-2] * unit > BUCKET_MOST_S:
        raise HistogramUnusable(f"{metric}: a bucket has a bound that is no latency")
    return LatencyHistogram(
        bounds=tuple(bound * unit for bound in bounds),
        cumulative=cumulative,
        sum_seconds=seconds,
        requests=requests,
    )


def _sample(metric: str, line: str) -> tuple[str, str, float]:
    """Name, labels and value of one sample.

    In time linear in the line: a general parser may take seconds on a crafted page, while the agent
    serves all other tenants.
    """
    match = _SAMPLE.match(line)
    try:
        if match is None:
            raise ValueError("no sample")
        return match[1], match[2] or "", float(match[3])
    except ValueError as error:
        # Omit the line: it may differ at every read.
        raise HistogramUnusable(f"{metric}: its lines cannot be parsed") from error


def _bound(metric: str, labels: str) -> float:
    match = _LE.search(labels)
    try:
        bound = float(match[1]) if match else math.nan
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise HistogramUnusable(f"{metric}: a bucket has a bound that is no number")
    return bound


def _types(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Name and type of every metric with a type line."""
    for line in lines:
        words = line.split()
        if len(words) == 4 and words[:2] == ["#", "TYPE"]:
            yield words[2], words[3]


def _named(types: Mapping[str, str]) -> str:
    """A few histograms of the page; invalid metric names are left out."""
    there = sorted(
        name for name, kind in types.items() if kind == "histogram" and _NAME.fullmatch(name)
    )
    if not there:
        return ""
    more = ", ..." if len(there) > NAMED_MOST else ""
    return f" (there are: {', '.join(there[:NAMED_MOST])}{more})"
