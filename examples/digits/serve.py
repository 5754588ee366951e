# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads digits over HTTP: ``python -m digits.serve``.

`POST /predict` reads an image, `GET /healthz` says whether to send requests here, `GET /metrics`
is for Prometheus. Without a file of weights the server first trains its own, which takes a second.

On SIGTERM no request is lost: for DRAIN_SECONDS it goes on answering while `/healthz` says 503 and
every answer asks the client to connect again; then it stops listening, ends what has begun and
exits with 0.

Settings: PORT 8080, WEIGHTS (a file written by `digits.train`), HIDDEN as in training,
DRAIN_SECONDS 5, TRAIN_STEPS 500.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import perf_counter_ns
from typing import ClassVar, Final

import ullage_run
from digits import checkpoint, data
from digits.histogram import RequestMetrics
from digits.network import Network
from digits.plan import BadSetting, Plan, whole
from digits.reader import BadRequest, Reader
from digits.training import Trainer

PORT: Final = 8080
TRAIN_STEPS: Final = 500
DRAIN_SECONDS: Final = 5
IDLE_SECONDS: Final = 5.0
"""How long a silent connection is kept; bounds the wait for the last ones at the end."""
LONGEST_BODY: Final = 16 * 1024
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class DigitServer(ThreadingHTTPServer):
    """The server: a thread per connection; closing waits for all of them."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, port: int, reader: Reader, *, host: str = "") -> None:
        super().__init__((host, port), Handler)
        self.reader = reader
        self.metrics = RequestMetrics()
        self.draining = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no event; everything else is shown in full."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def drain(self, seconds: float) -> None:
        """Stop gently: send clients away for some time, then stop listening."""
        if not self.draining.is_set():
            self.draining.set()
            threading.Timer(seconds, self.shutdown).start()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: DigitServer
    protocol_version = "HTTP/1.1"
    server_version = "digits"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    routes: ClassVar[Mapping[str, str]] = {
        "/predict": "POST",
        "/healthz": "GET",
        "/metrics": "GET",
    }

    def do_GET(self) -> None:
        """Health and metrics."""
        if not self._expects("GET"):
            return
        if self.path == "/metrics":
            self._answer(HTTPStatus.OK, self.server.metrics.text().encode(), TEXT)
        elif self.server.draining.is_set():
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"draining\n", TEXT)
        else:
            self._answer(HTTPStatus.OK, b"ok\n", TEXT)

    def do_POST(self) -> None:
        """Read one digit, and count it as one step that took as long as it took."""
        if not self._expects("POST"):
            return
        started = perf_counter_ns()
        try:
            answer = self.server.reader.read(self._body()).to_json()
        except BadRequest as error:
            status, kind, answer = HTTPStatus.BAD_REQUEST, TEXT, f"{error}\n".encode()
        else:
            status, kind = HTTPStatus.OK, JSON
        took_ns = perf_counter_ns() - started
        self.server.metrics.observe(took_ns / 1e9, status)  # before its client hears of it
        self._answer(status, answer, kind)
        if status is HTTPStatus.OK:
            ullage_run.step(took_ns=took_ns)

    def log_message(self, *_: object) -> None:
        """Say nothing per request: the metrics do."""

    def _body(self) -> bytes:
        """The request's body.

        Raises:
            BadRequest: its length is not given or too large.
        """
        text = self.headers.get("Content-Length", "")
        if not text.isdecimal() or int(text) > LONGEST_BODY:
            self.close_connection = True  # what follows on this connection cannot be told apart
            raise BadRequest(f"expected a Content-Length of at most {LONGEST_BODY}")
        return self.rfile.read(int(text))

    def _expects(self, method: str) -> bool:
        """Whether the path exists and takes this method; answers if not."""
        allowed = self.routes.get(self.path)
        if allowed == method:
            return True
        self.close_connection = True  # a body may follow that no one reads
        if allowed is None:
            self._answer(HTTPStatus.NOT_FOUND, b"try /predict, /healthz, /metrics\n", TEXT)
        else:
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}\n".encode(), TEXT)
        return False

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection or self.server.draining.is_set():
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def prepare(plan: Plan) -> Reader:
    """Load the weights, or train some.

    Raises:
        CheckpointUnusable: the file is damaged or was trained with another HIDDEN.
        DataMissing: there are no images to train with.
    """
    network = Network(plan.hidden)
    if plan.weights is not None and plan.weights.exists():
        theta = checkpoint.read(plan.weights, "theta")["theta"]
        if theta.shape != (network.size,):
            raise checkpoint.CheckpointUnusable(
                f"{plan.weights} does not fit HIDDEN={plan.hidden}: set it as in the training"
            )
        print(f"weights from {plan.weights}", flush=True)
        return Reader(network, theta)
    trainer = Trainer(plan, data.load())
    while not trainer.finished:
        trainer.advance()
    print(f"trained {plan.steps} steps, test accuracy {trainer.accuracy():.4f}", flush=True)
    return Reader(network, trainer.state.theta)


def main() -> int:
    """Serve until told to stop.

    Returns:
        The exit code.
    """
    ullage_run.watch_sigterm()  # first: PID 1 without a handler ignores SIGTERM
    try:
        steps = whole(os.environ, "TRAIN_STEPS", TRAIN_STEPS)
        drain_seconds = whole(os.environ, "DRAIN_SECONDS", DRAIN_SECONDS, least=0)
        port = whole(os.environ, "PORT", PORT)
        reader = prepare(replace(Plan.from_environment(os.environ), steps=steps))
    except (BadSetting, checkpoint.CheckpointUnusable, data.DataMissing) as error:
        print(error, file=sys.stderr)
        return 2
    with DigitServer(port, reader) as server:
        ullage_run.on_notice(lambda _: server.drain(drain_seconds))
        print(f"serving on port {server.server_address[1]}", flush=True)
        server.serve_forever(poll_interval=0.1)
    print("drained", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
