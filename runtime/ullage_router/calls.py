# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A client's request in the router, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from ullage.engines.batching.waiting import BatchRequest
from ullage_router.generation import Generate, GenerationKey, TokenMeter
from ullage_router.open_inference import InferRequest
from ullage_router.paths import ready_path_of
from ullage_router.replicas import AnswerStream
from ullage_router.run_times import app_of
from ullage_run.binary_tensors import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAnswer:
    """An answer to a client; ``headers`` are end-to-end ones."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    """The reason why the router itself answers; empty for a replica's answer."""
    stream: AnswerStream | None = None
    """The stream, if the body comes in parts."""


Translate = Callable[[bytes], Body]
"""Translates a replica's answer to the client's protocol, or raises MalformedAnswer."""


@dataclass(slots=True, kw_only=True, eq=False)
class Generated:
    """A generation request in progress: its ``key`` names the requested model."""

    key: GenerationKey
    generate: Generate
    meter: TokenMeter = field(default_factory=TokenMeter)
    beside: int = 0
    """Requests that its replica ran when it began, itself included."""


@dataclass(slots=True, kw_only=True, eq=False)
class RouterCall:
    """A request that waits or runs.

    Calls of one ``group`` may share a batch; ``None`` runs alone. ``avoid`` is the replica that
    failed it; it is repeated once, and only if it is ``idempotent``.
    """

    request: BatchRequest
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    answer: asyncio.Future[ClientAnswer]
    infer: InferRequest | None = None
    group: Hashable | None = None
    idempotent: bool = False
    avoid: int | None = None
    translate: Translate | None = None
    """Set for a client with another protocol than the replicas'."""
    generated: Generated | None = None
    """Set for a generation request to generative servers."""
    raw_apart: bool | None = None
    """True if its inputs are raw, where that separates batches; ``None`` = it does not."""
    _ready_path: str | None = field(init=False, default=None)
    due_s: float = field(init=False)
    """Its deadline; that of ``request`` is later while it is held without a ready replica."""

    def __post_init__(self) -> None:
        self.due_s = self.request.deadline_s

    @property
    def ready_path(self) -> str:
        """The readiness path of its model; empty where there is none."""
        if self._ready_path is None:
            self._ready_path = ready_path_of(self.path)
        return self._ready_path

    @property
    def app(self) -> str:
        """Its application."""
        return app_of(self.request.app)

    @property
    def number(self) -> int:
        """Its number in the queue."""
        return self.request.number

    def give(self, answer: ClientAnswer) -> None:
        """Answer it, unless its client has disconnected."""
        if not self.answer.done():
            self.answer.set_result(answer)
