# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a router, read from the command line."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ullage.engines.batching.chooser import SIZES, BatchPolicy, BatchRules
from ullage_router.paths import READY, ModelPath
from ullage_run.frames import address_of

MIB: Final = 1024 * 1024
DEADLINE_HEADER: Final = "x-deadline-ms"
APP_HEADER: Final = "x-app"
GRPC_SCHEME: Final = "grpc://"
Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAddress:
    """A replica: its address, and the device and share on which its run times depend."""

    url: str
    device: str = ""
    share_percent: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of one client, and of all together.

    ``body_s`` is the time for a client to send its body and to read an answer, ``answer_s`` that of
    a replica for its answer or for each part of a stream, ``stream_s`` that for all parts;
    ``longest_s`` is the latest deadline that may be requested.
    """

    body_bytes: int = 4 * MIB
    answer_bytes: int = 64 * MIB
    queue_calls: int = 10_000
    queue_bytes: int = 256 * MIB
    connections: int = 12_000
    body_s: float = 10.0
    idle_s: float = 75.0
    answer_s: float = 30.0
    stream_s: float = 3600.0
    longest_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeSettings:
    """Settings of servers that batch continuously.

    A replica whose KV cache is used above ``cache_limit`` (0..1) gets no new requests. It runs only
    as many requests as keep the time between tokens below ``between_s`` seconds; 0 = no limit.
    """

    cache_limit: float = 0.9
    between_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Addresses of a router; gRPC is off without one."""

    http: Address
    metrics: Address
    grpc: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """A router's settings; times are seconds."""

    backends: tuple[ReplicaAddress, ...]
    objective_s: float
    followed: ReplicaAddress | None = None
    """Its host is a DNS name: each of its addresses is a replica, also later ones."""
    follow_s: float = 1.0
    """Interval between two lookups of that name."""
    hold_s: float = 0.0
    """Longest wait of a request from its arrival while no replica is ready."""
    rules: BatchRules = field(default_factory=BatchRules)
    fixed_s: float = 0.0
    in_flight: int = 1
    most_rows: int = 0
    deadline_header: str = DEADLINE_HEADER
    app_header: str = APP_HEADER
    pass_headers: tuple[str, ...] = ("authorization",)
    probe_path: str = READY
    probe_s: float = 0.5
    drain_s: float = 30.0
    linger_s: float = 5.0
    generative: GenerativeSettings | None = None
    """The replicas are generative servers; ``objective_s`` is that of the first token."""
    limits: ClientLimits = field(default_factory=ClientLimits)

    @property
    def over_grpc(self) -> bool:
        """True if the replicas speak gRPC; all speak one protocol."""
        first = self.backends[0] if self.followed is None else self.followed
        return first.url.startswith(GRPC_SCHEME)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m ullage_router",
        description="Batches requests by their deadlines and spreads them over replicas",
    )
    made.add_argument(
        "--backend",
        action="append",
        default=[],
        type=backend_of,
        help="http://HOST:PORT[,device=NAME][,share=PERCENT] of a replica; once for each; "
        "grpc:// where they speak gRPC",
    )
    made.add_argument(
        "--follow",
        type=backend_of,
        help="the same with a name in DNS, instead of --backend: each of its addresses is a "
        "replica, those that it gets later, too",
    )
    made.add_argument(
        "--hold-seconds",
        type=_not_negative,
        default=0.0,
        help="while no replica is ready a request waits so long from its arrival (0: till its "
        "deadline)",
    )
    made.add_argument(
        "--objective-ms", type=_positive, required=True, help="deadline of a request without one"
    )
    made.add_argument("--listen", default="0.0.0.0:8080", help="HOST:PORT for requests")
    made.add_argument("--grpc-listen", help="HOST:PORT for requests over gRPC (none: no gRPC)")
    made.add_argument("--metrics", default="0.0.0.0:9464", help="HOST:PORT for GET /metrics")
    made.add_argument(
        "--policy", type=BatchPolicy, choices=list(BatchPolicy), default=BatchPolicy.ORLOJ
    )
    made.add_argument(
        "--sizes", type=sizes_of, default=SIZES, help="batch sizes, requests (1,2,4,8,16)"
    )
    made.add_argument("--most-rows", type=_count, default=0, help="rows in a batch (0: no bound)")
    made.add_argument("--fixed-ms", type=_not_negative, default=0.0, help="c0, cost of any batch")
    made.add_argument("--in-flight", type=_one_or_more, default=1, help="batches a replica runs")
    made.add_argument(
        "--deadline-header", default=DEADLINE_HEADER, help="milliseconds from arrival"
    )
    made.add_argument("--app-header", default=APP_HEADER, help="names the application")
    made.add_argument(
        "--pass-header",
        action="append",
        default=["authorization"],
        help="passed on with a batch; only requests with the same value share one",
    )
    made.add_argument("--probe-path", default=READY, help="answers 200 when ready")
    made.add_argument(
        "--generative",
        action="store_true",
        help="the replicas batch continuously (vLLM, SGLang, llama.cpp): requests for text are "
        "sent one by one, in the order that keeps most first tokens in time; --objective-ms is "
        "that of the first token",
    )
    made.add_argument(
        "--cache-limit-percent",
        type=_percent,
        default=90.0,
        help="with --generative: a replica whose KV cache is used above this gets no new requests",
    )
    made.add_argument(
        "--inter-token-ms",
        type=_not_negative,
        default=0.0,
        help="with --generative: longest time between two tokens; it limits the requests that a "
        "replica runs at once (0: no limit)",
    )
    limits = ClientLimits()
    made.add_argument("--body-bytes", type=_one_or_more, default=limits.body_bytes)
    made.add_argument("--queue", type=_one_or_more, default=limits.queue_calls, help="requests")
    made.add_argument("--queue-bytes", type=_one_or_more, default=limits.queue_bytes)
    made.add_argument("--connections", type=_one_or_more, default=limits.connections)
    made.add_argument("--body-seconds", type=_positive, default=limits.body_s)
    made.add_argument("--answer-seconds", type=_positive, default=limits.answer_s)
    made.add_argument(
        "--stream-seconds",
        type=_positive,
        default=limits.stream_s,
        help="for an answer that comes in parts, from its first one; then it breaks off",
    )
    made.add_argument("--longest-ms", type=_positive, default=1e3 * limits.longest_s)
    made.add_argument("--linger-seconds", type=_not_negative, default=5.0, help="after SIGTERM")
    made.add_argument("--drain-seconds", type=_positive, default=30.0, help="then it ends")
    made.add_argument("--version", action="store_true", help="say the version and end")
    return made


def settings_of(given: argparse.Namespace) -> RouterSettings:
    """Settings from the arguments.

    Raises:
        ValueError: they contradict each other; the text says what to change.
    """
    if given.objective_ms > given.longest_ms:
        raise ValueError("--objective-ms is above --longest-ms")
    if given.body_bytes > given.queue_bytes:
        raise ValueError("--body-bytes is above --queue-bytes: no such request could wait")
    if bool(given.backend) == (given.follow is not None):
        raise ValueError("name the replicas by --backend, or one name for all by --follow")
    if len({backend.url for backend in given.backend}) < len(given.backend):
        raise ValueError("--backend names a replica twice")
    if len({backend.url.partition("://")[0] for backend in given.backend}) > 1:
        raise ValueError("--backend: all replicas speak HTTP, or all gRPC")
    made = RouterSettings(
        backends=tuple(given.backend),
        followed=given.follow,
        hold_s=given.hold_seconds,
        objective_s=given.objective_ms / 1e3,
        rules=BatchRules(policy=given.policy, sizes=given.sizes),
        fixed_s=given.fixed_ms / 1e3,
        in_flight=given.in_flight,
        most_rows=given.most_rows,
        deadline_header=given.deadline_header,
        app_header=given.app_header,
        pass_headers=tuple(dict.fromkeys(name.lower() for name in given.pass_header)),
        probe_path=given.probe_path,
        drain_s=given.drain_seconds,
        linger_s=given.linger_seconds,
        generative=_generative(given),
        limits=ClientLimits(
            body_bytes=given.body_bytes,
            queue_calls=given.queue,
            queue_bytes=given.queue_bytes,
            connections=given.connections,
            body_s=given.body_seconds,
            answer_s=given.answer_seconds,
            stream_s=given.stream_seconds,
            longest_s=given.longest_ms / 1e3,
        ),
    )
    if made.generative is not None and made.over_grpc:
        raise ValueError("--generative: the replicas speak HTTP (--backend http://HOST:PORT)")
    if made.over_grpc and not probed_over_grpc(made.probe_path):
        raise ValueError("--probe-path is /v2/health/ready or /v2/models/NAME/ready over gRPC")
    return made


def _generative(given: argparse.Namespace) -> GenerativeSettings | None:
    if given.generative:
        limit, between_s = given.cache_limit_percent / 100, given.inter_token_ms / 1e3
        return GenerativeSettings(cache_limit=limit, between_s=between_s)
    if given.inter_token_ms:
        raise ValueError("--inter-token-ms: only generative servers have one (--generative)")
    return None


def probed_over_grpc(path: str) -> bool:
    """True if an HTTP path has a gRPC method for readiness."""
    model = ModelPath.of(path)
    return path == READY or (model is not None and model.what == "ready")


def addresses_of(given: argparse.Namespace) -> Addresses:
    """Addresses of requests and of metrics.

    Raises:
        ValueError: one is not HOST:PORT.
    """
    return Addresses(
        http=address_of(given.listen, "--listen"),
        metrics=address_of(given.metrics, "--metrics"),
        grpc=address_of(given.grpc_listen, "--grpc-listen") if given.grpc_listen else None,
    )


def backend_of(text: str) -> ReplicaAddress:
    """``http://HOST:PORT[,device=NAME][,share=PERCENT]``.

    Raises:
        argparse.ArgumentTypeError: it is invalid; the text says why.
    """
    url, *words = text.split(",")
    split = urlsplit(url)
    if (
        split.scheme not in ("http", "grpc")
        or not split.hostname
        or not split.port
        or split.path.strip("/")
        or split.query
    ):
        raise argparse.ArgumentTypeError(
            f"{url}: a replica is http://HOST:PORT or grpc://HOST:PORT"
        )
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if len(given) < len(words) or not given.keys() <= {"device", "share"}:
        raise argparse.ArgumentTypeError(f"{text}: a replica has device=NAME and share=PERCENT")
    share = _positive(given.get("share", "100"))
    if share > 100:
        raise argparse.ArgumentTypeError(f"{text}: a share is at most 100 percent")
    return ReplicaAddress(url=url.rstrip("/"), device=given.get("device", ""), share_percent=share)


def sizes_of(text: str) -> tuple[int, ...]:
    """Batch sizes, rising and separated by commas.

    Raises:
        argparse.ArgumentTypeError: a size is not a number, below 1, or repeated.
    """
    try:
        sizes = tuple(int(word) for word in text.split(","))
        return BatchRules(sizes=sizes).sizes
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no number") from None
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is no finite number")
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _percent(text: str) -> float:
    number = _positive(text)
    if number > 100:
        raise argparse.ArgumentTypeError(f"{text} is above 100 percent")
    return number


def _not_negative(text: str) -> float:
    number = _number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def _count(text: str) -> int:
    number = _not_negative(text)
    if number != int(number):
        raise argparse.ArgumentTypeError(f"{text} is no whole number")
    return int(number)


def _one_or_more(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number
