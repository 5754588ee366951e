# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A coordinator's report on its job: ``GET /status``, JSON, and nothing else.

Read-only, small, without a token: only figures and names of members, which the pods show anyway. It
must never delay the coordinator: it reads existing state, in its own threads.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from ullage_coordinator.doorway import BACKLOG, Doorway
from ullage_coordinator.times import STATUS_ASK_S, STATUS_PLACE_S

PATH: Final = "/status"
MOST_ASKERS: Final = 32
"""Most concurrent clients; one more closes the oldest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorState:
    """Progress of a job.

    Attributes:
        stage: 1 to 3.
        epoch: Epoch of the maps.
        step: The last that all finished.
        committed: The last complete one in the copy; ``None`` = none.
        copied: The maps require a copy.
        reliable: Running members on machines that are not preempted.
        transient: The other running members.
    """

    stage: int
    epoch: int
    step: int
    committed: int | None
    copied: bool
    reliable: int
    transient: int


class Tale:
    """Events so far, and the job's progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: Callable[[], CoordinatorState | None] = lambda: None
        self._lost_steps = 0
        self._recoveries = 0
        self._state_lost = False

    def ask(self, progress: Callable[[], CoordinatorState | None]) -> None:
        """Set the source of the job's progress."""
        self._progress = progress

    def note(self, event: str, figures: Mapping[str, object]) -> None:
        """Count an event of the coordinator."""
        lost = figures.get("lostSteps", 0)
        with self._lock:
            if event == "Recovered" and isinstance(lost, int):
                self._recoveries += 1
                self._lost_steps += lost
            elif event == "StateLost":
                self._state_lost = True

    def answer(self) -> dict[str, object]:
        """The answer to ``GET /status``."""
        coordinator_state = self._progress()
        with self._lock:
            counts: dict[str, object] = {
                "lostSteps": self._lost_steps,
                "recoveries": self._recoveries,
                "stateLost": self._state_lost,
            }
        return counts if coordinator_state is None else asdict(coordinator_state) | counts


class StatusServer:
    """Answers on an address until it is closed.

    Args:
        listen: Host and port; port 0 = any free one.
        answer: Makes the answer.
    """

    def __init__(
        self, listen: tuple[str, int], status_of: Callable[[], Mapping[str, object]]
    ) -> None:
        class StatusHandler(BaseHTTPRequestHandler):
            timeout = STATUS_ASK_S
            server_version = "ullage-lead"
            sys_version = ""

            def do_GET(self) -> None:
                """Answer ``/status``, and 404 otherwise."""
                known = self.path.partition("?")[0] == PATH
                body = json.dumps(status_of()).encode() if known else b""
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Do nothing: the log belongs to the coordinator."""

        class StatusSocket(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
            daemon_threads = True
            request_queue_size = BACKLOG
            doorway = Doorway(MOST_ASKERS, STATUS_ASK_S)
            threads = threading.BoundedSemaphore(MOST_ASKERS + 1)

            def process_request(
                self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
            ) -> None:
                """Answer in its own thread, with a limited number of threads."""
                assert isinstance(request, socket.socket)
                self.doorway.enter(request)
                if not self.threads.acquire(timeout=STATUS_PLACE_S):
                    self.shutdown_request(request)
                    return
                try:
                    super().process_request(request, client_address)
                except BaseException:
                    self.threads.release()
                    raise

            def process_request_thread(
                self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
            ) -> None:
                """Release the thread's place."""
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    self.threads.release()

            def service_actions(self) -> None:
                """Called by the loop periodically."""
                self.doorway.expire()

            def shutdown_request(
                self, request: socket.socket | tuple[bytes, socket.socket]
            ) -> None:
                """Close a request that was answered or has ended."""
                assert isinstance(request, socket.socket)
                self.doorway.known(request)
                super().shutdown_request(request)

            def handle_error(self, request: object, client_address: object) -> None:
                """Do nothing: clients may disconnect at any time."""

        self._server = StatusSocket(listen, StatusHandler)
        host, port = self._server.server_address[:2]
        self.address: tuple[str, int] = (str(host), int(port))
        serve = partial(
            self._server.serve_forever, poll_interval=0.1
        )  # longest delay of a shutdown
        threading.Thread(target=serve, name="ullage-status", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
