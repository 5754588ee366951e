# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from bench.request_counts import Counts, parsed, rows_of

PAGE = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="pods",subresource="",verb="POST"} 3
apiserver_request_total{code="409",dry_run="",resource="pods",subresource="",verb="POST"} 1
apiserver_request_total{code="200",resource="gpunodes",subresource="status",verb="APPLY"} 8
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="WATCH"} 90
# TYPE apiserver_request_body_size_bytes histogram
apiserver_request_body_size_bytes_bucket{group="",resource="pods",verb="create",le="+Inf"} 4
apiserver_request_body_size_bytes_sum{group="",resource="pods",verb="create"} 4000
apiserver_request_body_size_bytes_count{group="",resource="pods",verb="create"} 4
another_metric{verb="POST"} NaN
"""


def test_writes_are_counted_whatever_their_answer_and_watches_are_not() -> None:
    counts = parsed(PAGE)
    assert counts.requests == {("POST", "pods"): 4, ("APPLY", "gpunodes/status"): 8}
    assert counts.body_bytes == {("create", "pods"): 4000}


def test_a_table_says_what_one_job_costs_beside_the_limit() -> None:
    ours, limit = parsed(PAGE), Counts()
    limit.requests["POST", "pods"] = 2
    lines = {row.what: (row.ours, row.limit) for row in rows_of(ours, limit, 4)}
    assert lines == {
        "APPLY gpunodes/status, requests a job": ("2.00", "0.00"),
        "POST pods, requests a job": ("1.00", "0.50"),
        "create pods, body bytes a job": ("1000", "0"),
    }


def test_what_came_before_is_not_counted() -> None:
    assert parsed(PAGE).since(parsed(PAGE)).requests == {}
