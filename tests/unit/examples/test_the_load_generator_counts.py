# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from digits import load
from digits.load import Schedule

ANSWER_S = 0.002
"""Seen in figures of a tenth of a millisecond, however fast the machine is."""


class AlwaysThree(BaseHTTPRequestHandler):
    """Healthy, always reads a three, and fails every fourth request."""

    asked = 0

    def do_GET(self) -> None:
        self._answer(200, b"ok")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        time.sleep(ANSWER_S)
        if self.asked % 4 == 0:
            self._answer(500, b"oops")
        else:
            self._answer(200, b'{"digit": 3}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Sleeping(AlwaysThree):
    """A router before a service at zero: a question about its model wakes it, no health check."""

    asked = 0
    probed: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.probed.append(self.path)
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        self._answer(200, b'{"outputs": [{"data": [3]}]}')


@pytest.fixture
def url() -> Iterator[str]:
    AlwaysThree.asked = 0
    with served(AlwaysThree) as found:
        yield found


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def figures(printed: str) -> dict[str, float]:
    words = printed.splitlines()[-1].split()
    return {name: float(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def test_errors_accuracy_and_latency_are_reported(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load.main(["--url", url, "--requests", "40", "--workers", "1"]) == 0
    printed = capsys.readouterr()
    seen = figures(printed.out)
    assert (seen["requests"], seen["errors"]) == (40, 10)
    assert 1e3 * ANSWER_S <= seen["p50_ms"] <= seen["p99_ms"]
    assert 0 < seen["accuracy"] < 0.5
    assert "10 x ValueError: status 500: oops" in printed.err
    assert AlwaysThree.asked == 40, "nothing is tried again"


def test_a_service_without_a_replica_is_woken_by_a_question_about_its_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with served(Sleeping) as url:
        words = ["--batched", "--url", url, "--requests", "4", "--workers", "1", "--wait", "0"]
        assert load.main(words) == 0
    assert figures(capsys.readouterr().out)["requests"] == 4
    assert (Sleeping.asked, Sleeping.probed) == (4, ["/v2/models/digits"])


def test_errors_fail_the_run_only_if_asked(url: str) -> None:
    words = ["--url", url, "--requests", "4", "--workers", "1"]
    assert load.main(words) == 0
    assert load.main([*words, "--fail-on-error"]) == 1


def test_a_server_that_is_not_there_ends_the_run(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load.main(["--url", f"http://127.0.0.1:{port}", "--wait", "0"]) == 2
    assert "did not become ready" in capsys.readouterr().err


def test_a_schedule_ends_with_its_count_or_its_time() -> None:
    by_count = Schedule(count=3, seconds=60, rate=0)
    assert [turn is not None for turn in (by_count.next() for _ in range(4))] == [True] * 3 + [
        False
    ]
    by_time = Schedule(count=100, seconds=0, rate=10)
    by_time.next()
    assert by_time.next() is None


def test_with_a_rate_requests_are_due_evenly() -> None:
    schedule = Schedule(count=4, seconds=60, rate=100)
    turns = [schedule.next() for _ in range(4)]
    due = [turn[1] for turn in turns if turn is not None]
    assert due == pytest.approx([due[0] + 0.01 * number for number in range(4)])
    assert time.monotonic() >= due[-1]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--url", "digits-serve:8080"], "expected http://HOST:PORT, not digits-serve:8080"),
        (["--requests", "0"], "expected a whole number of at least 1, not 0"),
        (["--workers", "many"], "expected a whole number of at least 1, not many"),
    ],
)
def test_a_misspelt_option_is_named(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load.main(words)
    assert complaint in capsys.readouterr().err
