# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import http.client
import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from digits import checkpoint, load, serve
from digits.checkpoint import CheckpointUnusable
from digits.data import BRIGHTEST, PIXELS, Digits
from digits.plan import Plan
from digits.reader import BadRequest, Reader
from digits.serve import DigitServer

Start = Callable[..., subprocess.Popen[str]]
BLANK = json.dumps({"pixels": [0] * PIXELS}).encode()


@pytest.fixture(scope="module")
def reader() -> Reader:
    return serve.prepare(Plan(steps=300, hidden=32))


@pytest.fixture
def server(reader: Reader) -> Iterator[DigitServer]:
    with DigitServer(0, reader, host="127.0.0.1") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request(
    server: DigitServer, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, body)
    response = connection.getresponse()
    answer = response.status, response.read(), response.getheader("Connection", "")
    connection.close()
    return answer


def test_it_reads_most_unseen_digits(server: DigitServer, digits: Digits) -> None:
    right = 0
    for image, label in zip(digits.test_images[:60], digits.test_labels[:60], strict=True):
        body = json.dumps({"pixels": (image * BRIGHTEST).tolist()}).encode()
        status, answer, _ = request(server, "POST", "/predict", body)
        assert status == 200
        right += json.loads(answer)["digit"] == label
    assert right >= 54


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"pixels": [1, 2]}',
        json.dumps({"pixels": ["a"] * PIXELS}).encode(),
        json.dumps({"pixels": [True] * PIXELS}).encode(),
        json.dumps({"pixels": [17] + [0] * (PIXELS - 1)}).encode(),
        json.dumps({"pixels": [float("nan")] * PIXELS}).encode(),
        json.dumps({"pixels": [10**400] * PIXELS}).encode(),
        b"[" * 9000,
        b"\xff\xfe",
    ],
)
def test_a_bad_image_gets_a_sentence(reader: Reader, body: bytes) -> None:
    with pytest.raises(BadRequest, match=r'expected \{"pixels": \[64 numbers from 0 to 16\]\}'):
        reader.read(body)


def test_http_mistakes_are_answered(server: DigitServer) -> None:
    assert request(server, "POST", "/predict", b"{}")[0] == 400
    assert request(server, "POST", "/predict", b"x" * 20_000)[0] == 400
    assert request(server, "GET", "/predict")[0] == 405
    assert request(server, "POST", "/healthz", b"")[0] == 405
    assert request(server, "GET", "/nothing")[0] == 404
    assert request(server, "POST", "/predict", BLANK)[0] == 200


def test_metrics_count_every_answer_in_a_bucket(server: DigitServer) -> None:
    for body in (BLANK, BLANK, b"{}"):
        request(server, "POST", "/predict", body)
    status, text, _ = request(server, "GET", "/metrics")
    lines = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if line[0] != "#")
    assert status == 200
    assert lines['ullage_request_seconds_bucket{le="+Inf"}'] == "3"
    assert lines["ullage_request_seconds_count"] == "3"
    assert lines['digits_requests_total{code="200"}'] == "2"
    assert lines['digits_requests_total{code="400"}'] == "1"
    buckets = [int(value) for name, value in lines.items() if "bucket" in name]
    assert buckets == sorted(buckets)


def test_while_draining_it_answers_but_sends_clients_away(server: DigitServer) -> None:
    assert request(server, "GET", "/healthz")[0] == 200
    server.draining.set()
    assert request(server, "GET", "/healthz")[0] == 503
    status, _, connection = request(server, "POST", "/predict", BLANK)
    assert (status, connection) == (200, "close")


def test_weights_must_fit(tmp_path: Path) -> None:
    file = tmp_path / "weights.npz"

    checkpoint.write(file, theta=np.zeros(3))
    with pytest.raises(CheckpointUnusable, match="does not fit HIDDEN=8"):
        serve.prepare(Plan(hidden=8, weights=file))


@pytest.mark.slow
def test_sigterm_under_load_loses_no_request(
    start: Start, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start("serve", PORT=port, DRAIN_SECONDS=2, TRAIN_STEPS=200)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("trained 200 steps")
    assert server.stdout.readline() == f"serving on port {port}\n"
    threading.Timer(0.2, server.send_signal, (signal.SIGTERM,)).start()
    words = ["--url", f"http://127.0.0.1:{port}", "--requests", "60", "--rate", "100"]
    assert load.main([*words, "--fail-on-error"]) == 0
    assert " errors 0 " in capsys.readouterr().out
    printed, complaints = server.communicate(timeout=60)
    assert (server.returncode, printed, complaints) == (0, "drained\n", "")
