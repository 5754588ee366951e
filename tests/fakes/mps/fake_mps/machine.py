# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The control daemon and its servers as one state machine on an injected clock.

It owns who is served, queued, refused, terminated and harmed. It never sleeps, opens no socket
and parses no command: the daemon feeds it connections, the command modules read and change it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from fake_mps.admission import admit
from fake_mps.hardware import Gpu, find_gpu, visible_gpus
from fake_mps.model import (
    Client,
    ClientState,
    Clock,
    Hello,
    Limits,
    Logs,
    Processes,
    Server,
    ServerState,
)
from fake_mps.partitions import Partitions
from fake_mps.script import Script, Start
from fake_mps.timers import Timers

CONNECTION_FAILED = "CUDA_ERROR_MPS_CONNECTION_FAILED"
NOT_READY = "CUDA_ERROR_MPS_SERVER_NOT_READY"
RPC_FAILURE = "CUDA_ERROR_MPS_RPC_FAILURE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the daemon was started."""

    protocol: int = 2
    static: bool = False
    multiuser: bool = False
    uid: int = 0
    pid: int = 1
    visible_devices: str | None = None
    pipe_directory: str = "/tmp/nvidia-mps"


class Machine:
    """One control daemon, its servers and their clients."""

    def __init__(
        self,
        script: Script,
        options: Options,
        *,
        clock: Clock,
        processes: Processes,
        logs: Logs,
    ) -> None:
        self.script = script
        self.options = options
        self.logs = logs
        self.timers = Timers(clock)
        self.gpus: tuple[Gpu, ...] = visible_gpus(script.gpus, options.visible_devices)
        self.default_percent = 100.0
        self.default_priority = 0
        self.default_memory: dict[str, int] = {}
        self.features_off: set[str] = set()
        self.servers: dict[str, Server] = {}
        self.queue: list[Client] = []
        self.partitions = Partitions()
        self.stopped = False
        self.crashed = False
        self.hung = False
        self.wedged = False
        self._processes = processes
        self._starts = 0
        self.terminations = 0
        self.rule_uses: dict[int, int] = {}
        self._regions = itertools.count(1)
        self._dice = random.Random(script.seed)
        for event in script.events:
            self.timers.after(event.at_s, self._action(event.do))
        logs.control("Start")

    # -- time and script -------------------------------------------------------------------------

    def tick(self) -> None:
        """Let everything happen that is due."""
        self.timers.run()

    def _action(self, name: str) -> Callable[[], None]:
        return lambda: self.do(name)

    def do(self, action: str) -> None:
        """Carry out one action of the script (see ``script.ACTIONS``) now."""
        if action == "crash_control":
            self.crashed = True
        elif action == "hang_control":
            self.hung = True
        for server in list(self.servers.values()):
            if action == "fault":
                self.fault(server, None, "CUDA_ERROR_LAUNCH_FAILED")
            elif action == "crash_server":
                self._processes.stop(server.pid)
                self.server_exited(server.pid, 1)
            elif action == "hang_server":
                server.hung = True
            elif action == "recover":
                self._recover(server)
        if action == "recover":
            self.hung = False
            self.serve_queue()

    # -- clients ---------------------------------------------------------------------------------

    def connect(self, hello: Hello) -> Client:
        """A CUDA process found the control socket; its inbox says what becomes of it."""
        client = Client(hello=hello)
        uid = self.server_uid(hello.uid)
        self.logs.control("Accepting connection...")
        if self.options.uid not in (0, uid):
            self.logs.control("User did not send valid credentials")
            self.refuse(client, CONNECTION_FAILED)
        elif self.options.protocol == 3:
            self._connect_named(client, uid)
        else:
            self._connect_single(client, uid)
        self.tick()
        return client

    def server_uid(self, uid: int) -> int:
        """The UID whose server takes a client: under a multi-user server everyone is its owner."""
        return self.options.uid if self.options.multiuser else uid

    def _connect_single(self, client: Client, uid: int) -> None:
        server = next(iter(self.servers.values()), None)
        if self.script.wedge_uid is not None and uid != self.script.wedge_uid:
            self.wedged = True
        if self.wedged or self.hung or self.queue or (server is not None and server.uid != uid):
            self._pend(client)
            self.queue.append(client)
            self.serve_queue()
        elif server is None:
            self._pend(client)
            self.start_server(uid, None).waiting.append(client)
        else:
            self._join(server, client)

    def _connect_named(self, client: Client, uid: int) -> None:
        name = client.hello.server or f"uid_{uid}"
        server = self.servers.get(name)
        if server is None and client.hello.server is None:
            server = self.start_server(uid, name)
        if server is None or client.hello.namespace not in server.namespaces or server.uid != uid:
            self.refuse(client, CONNECTION_FAILED)
        else:
            self._join(server, client)

    def _pend(self, client: Client) -> None:
        self.logs.control(
            f"NEW CLIENT 0 from user {client.hello.uid}: "
            "Server is not ready, push client to pending list"
        )

    def _join(self, server: Server, client: Client) -> None:
        if server.hung or server.state is ServerState.INITIALIZING:
            self._pend(client)
            server.waiting.append(client)
        elif server.state is ServerState.FAULT or server.terminating:
            self.refuse(client, NOT_READY)
        else:
            self.logs.control(f"NEW CLIENT 0 from user {client.hello.uid}: Server already exists")
            self._admit(server, client)

    def _admit(self, server: Server, client: Client) -> None:
        error = admit(self, server, client)
        if error is not None:
            self.refuse(client, error)

    def refuse(self, client: Client, error: str) -> None:
        """Tell a client that it gets no context."""
        client.state = ClientState.REFUSED
        client.inbox.append({"event": "refused", "error": error})

    def disconnect(self, client: Client, *, clean: bool) -> None:
        """The process is gone; ``clean`` means that it left by itself with no work outstanding."""
        server = self.server_of(client)
        harmed = client.busy and not clean and client.state is ClientState.ATTACHED
        client.state = ClientState.GONE
        for waiting in (self.queue, *(one.waiting for one in self.servers.values())):
            if client in waiting:
                waiting.remove(client)
        if server is not None:
            server.clients.remove(client)
            left = sum(other.hello.contexts for other in server.clients)
            self.logs.server(server.pid, "Receive command failed, assuming client exit")
            self.logs.server(
                server.pid,
                f"Volta MPS: Client disconnected. Number of active client contexts is {left}",
            )
            if harmed and not client.faulted:
                self._damage(server, client)
            self.check_recovery(server)
        self.serve_queue()
        self.tick()

    def server_of(self, client: Client) -> Server | None:
        """The server a client is attached to."""
        return next((one for one in self.servers.values() if client in one.clients), None)

    # -- harm ------------------------------------------------------------------------------------

    def client_fault(self, client: Client, error: str = "CUDA_ERROR_ILLEGAL_ADDRESS") -> None:
        """A fatal fault in one client: every client of its server gets it."""
        server = self.server_of(client)
        if server is not None and client.state is ClientState.ATTACHED:
            self.fault(server, client, error)

    def fault(self, server: Server, culprit: Client | None, error: str) -> None:
        """Put a server into FAULT; only the server log names the culprit."""
        server.state = ServerState.FAULT
        named = f" by client {culprit.hello.pid}" if culprit is not None else ""
        self.logs.server(server.pid, f"Fatal fault caused{named}: {error}")
        for client in server.clients:
            if client.state is ClientState.ATTACHED and not client.faulted:
                client.faulted = True
                client.inbox.append({"event": "error", "error": error})
        self.check_recovery(server)

    def _damage(self, server: Server, client: Client) -> None:
        kind = self.script.killed_client
        if kind == "random":
            kind = self._dice.choice(("none", "fault", "hang", "exit"))
        if kind == "fault":
            self.fault(server, client, "CUDA_ERROR_LAUNCH_FAILED")
        elif kind == "hang":
            server.hung = True
        elif kind == "exit":
            self._processes.stop(server.pid)
            self.server_exited(server.pid, 1)

    def check_recovery(self, server: Server) -> None:
        """A faulted server begins to recover once its last client left."""
        if server.state is ServerState.FAULT and not server.clients and not server.gone:
            self.timers.after(self.script.recover_s, lambda: self._recover(server))

    def _recover(self, server: Server) -> None:
        server.hung = False
        if server.state is ServerState.ACTIVE or (
            server.state is ServerState.FAULT and not server.clients
        ):
            self._ready(server)

    # -- servers ---------------------------------------------------------------------------------

    def start_server(
        self,
        uid: int,
        name: str | None,
        *,
        gpus: tuple[Gpu, ...] | None = None,
        allowed: str = "all",
    ) -> Server:
        """Start a server process; it serves once its scripted initialisation is over."""
        start = self._next_start()
        pid = self._processes.spawn(uid)
        server = Server(
            pid=pid,
            uid=uid,
            name=name or str(pid),
            gpus=self.gpus if gpus is None else gpus,
            limits=self._default_limits(),
            namespaces={"default": Limits()},
            allowed=allowed,
        )
        self.servers[server.name] = server
        self.logs.opened(pid, name)
        self.logs.control(f"Starting new server {pid} for user {uid}")
        self.logs.server(pid, "Start")
        self.timers.after(start.init_s, lambda: self._started(server, start))
        return server

    def _default_limits(self) -> Limits:
        if self.options.protocol == 3:
            return Limits()
        limits = Limits(percent=self.default_percent, priority=self.default_priority)
        for device, mib in self.default_memory.items():
            gpu = find_gpu(self.gpus, device)
            if gpu is not None:
                limits.memory_mib[gpu.uuid] = mib
        return limits

    def _next_start(self) -> Start:
        start = self.script.starts[min(self._starts, len(self.script.starts) - 1)]
        self._starts += 1
        return start

    def _started(self, server: Server, start: Start) -> None:
        if server.gone:
            return
        status = start.exit_status
        if status is None and not server.gpus:
            status = 1
        if status is not None:
            self._processes.stop(server.pid)
            self.server_exited(server.pid, status)
            return
        for ordinal, gpu in enumerate(server.gpus):
            self.logs.server(
                server.pid, f"Volta MPS: Creating server context on device {ordinal} ({gpu.name})"
            )
        server.region = f"/cuda.shm.{server.uid:x}.{server.pid:x}.{next(self._regions)}"
        self._processes.share(server.region)
        self.logs.server(server.pid, f"Created named shared memory region {server.region}")
        self.log_limits(server, server.limits)
        self.logs.control(f"NEW SERVER {server.pid}: Ready")
        self._ready(server)

    def log_limits(self, server: Server, limits: Limits) -> None:
        """Write limits in the words of the server log."""
        if limits.percent is not None:
            self.logs.server(server.pid, f"Active Threads Percentage set to {limits.percent:.1f}")
        for ordinal, gpu in enumerate(server.gpus):
            if gpu.uuid in limits.memory_mib:
                size = hex(limits.memory_mib[gpu.uuid] * 1024 * 1024)
                self.logs.server(
                    server.pid,
                    f"Device pinned memory limit for device {ordinal} set to {size} bytes",
                )
        if limits.priority is not None:
            self.logs.server(server.pid, f"Server Priority set to {limits.priority}")

    def _ready(self, server: Server) -> None:
        server.state = ServerState.ACTIVE
        waiting, server.waiting = server.waiting, []
        for client in waiting:
            self._admit(server, client)
        self.serve_queue()

    def server_exited(self, pid: int, status: int) -> None:
        """A server process ended, by itself or by anyone's signal."""
        server = next((one for one in self.servers.values() if one.pid == pid), None)
        if server is None:
            return
        del self.servers[server.name]
        server.gone = True
        self.logs.control(f"Server {pid} exited with status {status}")
        for client in server.clients:
            client.state = ClientState.TERMINATED
            client.inbox.append({"event": "error", "error": RPC_FAILURE})
        for client in server.waiting:
            self.refuse(client, CONNECTION_FAILED)
        server.clients, server.waiting = [], []
        self.serve_queue()

    def serve_queue(self) -> None:
        """Give the server to the UID that is first in line, if it is free."""
        if self.stopped or self.wedged or self.hung or not self.queue:
            return
        server = next(iter(self.servers.values()), None)
        uid = self.server_uid(self.queue[0].hello.uid)
        if server is not None and server.uid != uid:
            if server.clients or server.waiting or server.hung:
                return
            self.stop_server(server)  # whose end serves the queue again
            return
        if server is None:
            server = self.start_server(uid, None)
        while self.queue and self.server_uid(self.queue[0].hello.uid) == server.uid:
            server.waiting.append(self.queue.pop(0))
        if server.state is ServerState.ACTIVE:
            self._ready(server)

    def stop_server(self, server: Server) -> None:
        """Shut a server down in order."""
        self._processes.stop(server.pid)
        self.server_exited(server.pid, 0)
