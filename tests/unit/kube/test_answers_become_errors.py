# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The one mapping from what the API server answered to what a caller can act on."""

from __future__ import annotations

import orjson
import pytest

from ullage.kube.answers import MESSAGE_MAX, error_from_answer, error_from_status, seconds_to_wait
from ullage.ports import BadRequest, Conflict, Gone, Throttled, Unavailable


def status(code: int, message: str, reason: str = "") -> bytes:
    return orjson.dumps({"kind": "Status", "code": code, "message": message, "reason": reason})


def test_a_status_gives_its_text_and_reason() -> None:
    error = error_from_answer(409, "", status(409, "taken", "AlreadyExists"))
    assert isinstance(error, Conflict)
    assert (error.message, error.reason) == ("taken", "AlreadyExists")


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"\xff\xfe", b"[1]", b"{}", b""])
def test_an_answer_of_someone_else_is_quoted(body: bytes) -> None:
    error = error_from_answer(502, "", body)
    assert isinstance(error, Unavailable)
    assert error.message


def test_a_long_text_is_cut() -> None:
    assert len(error_from_answer(422, "", b"x" * 100_000).message) == MESSAGE_MAX


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 0.0), ("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0)],
)
def test_retry_after_is_seconds(header: str, seconds: float) -> None:
    assert seconds_to_wait(header) == seconds
    error = error_from_answer(429, header, status(429, "slow down"))
    assert isinstance(error, Throttled)
    assert error.retry_after_s == seconds


def test_an_apply_that_does_not_fit_the_schema_is_not_worth_repeating() -> None:
    text = "failed to create typed patch object (/n; x/v1, Kind=X): .spec.a: expected string"
    assert isinstance(error_from_answer(500, "", status(500, text)), BadRequest)
    assert isinstance(error_from_answer(500, "", status(500, "etcd is away")), Unavailable)


def test_a_status_inside_a_watch_is_mapped_alike() -> None:
    assert isinstance(error_from_status({"code": 410, "reason": "Expired"}), Gone)
    assert isinstance(error_from_status({"message": "no code at all"}), Unavailable)
