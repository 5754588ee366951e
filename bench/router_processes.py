# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes of the router's benchmarks: model server, router and peers; and what CPU they took."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.engines.batching.batch_time import BatchCosts

TICKS: Final = os.sysconf("SC_CLK_TCK")
STARTS_S: Final = 15.0
SLOW_START_S: Final = 120.0
"""BentoML imports for a while."""
NGINX: Final = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream model {{ server 127.0.0.1:{backend}; keepalive 512; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    keepalive_requests 1000000;
    location / {{
      proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""
"""A plain proxy as one sets it up for keep-alive on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that listens."""

    pids: tuple[int, ...]
    port: int
    metrics_port: int = 0

    def cpu_s(self) -> float:
        """CPU seconds that it has taken."""
        total = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS


@contextmanager
def model_server(costs: BatchCosts | None = None) -> Iterator[Process]:
    """The benchmark's model server."""
    words = []
    if costs is not None:
        pairs = ",".join(f"{size}={factor}" for size, factor in costs.factors.items())
        words = ["--fixed", str(costs.fixed_s), "--factors", pairs]
    with _listening([sys.executable, "-m", "bench.router_backend", *words]) as process:
        yield process


@contextmanager
def router(backend: Process, words: Sequence[str]) -> Iterator[Process]:
    """The product's router before one replica."""
    given = [
        *(sys.executable, "-m", "ullage_router"),
        *("--backend", f"http://127.0.0.1:{backend.port}"),
        *("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--connections", "2000"),
        *("--linger-seconds", "0"),
        *words,
    ]
    with _listening(given) as process:
        yield process


@contextmanager
def routers(backends: Sequence[Process], words: Sequence[str]) -> Iterator[Process]:
    """The product's router before several replicas."""
    given = [sys.executable, "-m", "ullage_router", "--linger-seconds", "0"]
    for backend in backends:
        given += ["--backend", f"http://127.0.0.1:{backend.port}"]
    given += ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--connections", "2000"]
    with _listening([*given, *words]) as process:
        yield process


@contextmanager
def nginx(backend: Process, program: str) -> Iterator[Process]:
    """Run nginx as a plain proxy before one replica."""
    with tempfile.TemporaryDirectory(prefix="bench-nginx-") as folder:
        port = free_port()
        config = Path(folder) / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, backend=backend.port, port=port), "utf-8")
        words = [program, "-p", folder, "-c", str(config), "-e", f"{folder}/error.log"]
        started = subprocess.Popen(words)
        try:
            _wait_for(port)
            yield Process(pids=(started.pid, *_children(started.pid)), port=port)
        finally:
            ended(started)


@contextmanager
def bentoml(program: Path, costs: BatchCosts, limit_s: float) -> Iterator[Process]:
    """BentoML with adaptive batching, told to keep a latency."""
    port = free_port()
    environment = {
        **_told(costs),
        "BENCH_LATENCY_MS": str(max(1, round(1e3 * limit_s))),
        "BENTOML_DO_NOT_TRACK": "true",
    }
    words = ["serve", "router_bentoml:Timed", "--host", "127.0.0.1", "--port", str(port)]
    started = subprocess.Popen(
        [str(program), *words, "--working-dir", str(Path(__file__).parent)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_answer(port, "/readyz")
        yield Process(pids=(started.pid,), port=port)
    finally:
        ended(started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How Ray Serve fills a batch: its largest size, and how long it waits for it, seconds."""

    size: int
    wait_s: float


@contextmanager
def rayserve(
    program: Path, costs: BatchCosts, filling: Filling, limit_s: float
) -> Iterator[Process]:
    """Ray Serve with its own batching, told to drop what is later than a limit.

    Args:
        program: Its ``serve`` command; the interpreter lies beside it.
        costs: What batches cost.
        filling: How it fills a batch.
        limit_s: How long a request may take, seconds.
    """
    with tempfile.TemporaryDirectory(prefix="bench-ray-", ignore_cleanup_errors=True) as folder:
        environment = {
            **_told(costs),
            "BENCH_BATCH_SIZE": str(filling.size),
            "BENCH_BATCH_WAIT_S": str(filling.wait_s),
            "BENCH_LIMIT_S": str(limit_s),
            "BENCH_PORT": str(free_port()),
            "BENCH_FOLDER": folder,
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        script = Path(__file__).with_name("router_rayserve.py")
        words = [str(program.with_name("python")), "-P", str(script)]
        with _listening(words, environment) as process:
            yield process


def _told(costs: BatchCosts) -> dict[str, str]:
    """The environment of a peer that runs the timed model itself."""
    return {
        **os.environ,
        "BENCH_FIXED_S": str(costs.fixed_s),
        "BENCH_FACTORS": json.dumps(dict(costs.factors)),
    }


def nginx_program(given: str | None) -> str | None:
    """Where nginx is, if it is anywhere."""
    return given or shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextmanager
def _listening(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    started = subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert started.stdout is not None
        said = started.stdout.readline().split()
        if not said or said[0] != "listening":
            raise RuntimeError(f"did not start: {' '.join(words[:3])}")
        ports = [int(word) for word in said[1:]]
        yield Process(pids=(started.pid,), port=ports[0], metrics_port=ports[-1])
    finally:
        ended(started)


def ended(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a process, by force where it takes its time."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _children(pid: int) -> tuple[int, ...]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8")
    return tuple(int(word) for word in listed.split())


def free_port() -> int:
    """A port that no one listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def wait_for_answer(port: int, path: str) -> None:
    """Wait until a server answers there."""
    end = time.monotonic() + SLOW_START_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _wait_for(port: int) -> None:
    end = time.monotonic() + STARTS_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
