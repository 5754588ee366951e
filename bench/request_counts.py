# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests and bytes that the API server counted, from its own ``/metrics``.

Everything that speaks to it is in there: ours, the scheduler, KWOK, node agents, this benchmark.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from bench.report import Row
from demo.progress import run

REQUESTS: Final = "apiserver_request_total"
BYTES: Final = "apiserver_request_body_size_bytes_sum"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
LEAST_PER_JOB: Final = 0.01
"""Lines with fewer requests a job are background: leases, heartbeats."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the API server counted since it started."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Writes by (verb, resource/subresource)."""
    body_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Bytes of request bodies by (verb, resource), as the API server names them."""

    def since(self, before: Counts) -> Counts:
        """What came after ``before``."""
        return Counts(self.requests - before.requests, self.body_bytes - before.body_bytes)


def parsed(page: str) -> Counts:
    """Counters of writes in a page of ``/metrics``.

    Raises:
        ValueError: a line of them is no metric.
    """
    lines = [line for line in page.splitlines() if line.startswith((REQUESTS, BYTES))]
    counts = Counts()
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            labels, value = sample.labels, int(sample.value)
            if sample.name == REQUESTS and labels["verb"] in WRITES:
                parts = (labels["resource"], labels["subresource"])
                counts.requests[labels["verb"], "/".join(filter(None, parts))] += value
            elif sample.name == BYTES:
                counts.body_bytes[labels["verb"], labels["resource"]] += value
    return counts


def counted(kubectl: str, kubeconfig: Path) -> Counts:
    """Ask the API server now.

    Raises:
        CommandFailed: it does not answer.
    """
    return parsed(run(kubectl, "--kubeconfig", str(kubeconfig), "get", "--raw", "/metrics"))


def rows_of(ours: Counts, limit: Counts, jobs: int) -> list[Row]:
    """Requests a job, then bytes a job, by verb and kind.

    The limit's own deletes, after its time ended, are in its column.
    """
    found = [
        Row(what=f"{verb} {what}, requests a job", ours=f"{number / jobs:.2f}",
            limit=f"{limit.requests[verb, what] / jobs:.2f}")
        for (verb, what), number in sorted(ours.requests.items())
        if number >= LEAST_PER_JOB * jobs
    ]  # fmt: skip
    found += [
        Row(what=f"{verb} {what}, body bytes a job", ours=f"{number / jobs:.0f}",
            limit=f"{limit.body_bytes[verb, what] / jobs:.0f}")
        for (verb, what), number in sorted(ours.body_bytes.items())
        if number >= jobs
    ]  # fmt: skip
    return found
