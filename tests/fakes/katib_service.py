# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A suggestion service of Katib, and its misdeeds.

It draws at random and remembers its trials in memory by their parameters, as those of Katib do:
one that it does not know is an error, also after a restart.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from ullage_katib.proto import suggestion_pb2 as messages
from ullage_katib.service import SERVICE

Misdeed = Callable[[messages.GetSuggestionsRequest, grpc.aio.ServicerContext], Awaitable[Any]]
Known = tuple[tuple[str, str], ...]
ALGORITHMS = {"random": {"random_state"}, "tpe": {"random_state", "n_startup_trials"}}
SUCCEEDED = messages.TrialStatus.SUCCEEDED


@dataclass(slots=True, kw_only=True)
class FakeKatibService:
    """What it was asked, and how it behaves.

    Attributes:
        misdeeds: What it does instead of answering, one for each call.
        always: What it does instead of answering, every time.
        validates: What it does instead of validating, from its next start on.
        values: Metrics that it was told, by trial.
    """

    misdeeds: list[Misdeed] = field(default_factory=list)
    always: Misdeed | None = None
    validates: Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]] | None = None
    asked: list[messages.GetSuggestionsRequest] = field(default_factory=list)
    validated: list[messages.Experiment] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    port: int = 0
    _known: set[Known] = field(default_factory=set)
    _random: random.Random = field(default_factory=lambda: random.Random(1))
    _server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {
            "GetSuggestions": self._suggest,
            "ValidateAlgorithmSettings": self.validates or self._validate,
        }
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    SERVICE,
                    {
                        name: grpc.unary_unary_rpc_method_handler(one)
                        for name, one in handlers.items()
                    },
                )
            ]
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(None)

    def forget(self) -> None:
        """As after a restart."""
        self._known.clear()
        self.values.clear()

    async def _validate(self, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
        experiment = messages.ValidateAlgorithmSettingsRequest.FromString(body).experiment
        self.validated.append(experiment)
        algorithm = experiment.spec.algorithm
        settings = ALGORITHMS.get(algorithm.algorithm_name)
        if settings is None:
            text = f"unknown algorithm name {algorithm.algorithm_name}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        for one in algorithm.algorithm_settings:
            if one.name not in settings:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown setting {one.name}")
        return b""

    async def _suggest(self, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = messages.GetSuggestionsRequest.FromString(body)
        self.asked.append(request)
        misdeed = self.misdeeds.pop(0) if self.misdeeds else self.always
        if misdeed is not None:
            answer = await misdeed(request, context)
            return answer if isinstance(answer, bytes) else answer.SerializeToString()
        for trial in request.trials:
            self._tell(trial)
        return self.draw(request).SerializeToString()

    def _tell(self, trial: messages.Trial) -> None:
        if trial.status.condition == SUCCEEDED:
            if _known(trial.spec.parameter_assignments.assignments) not in self._known:
                raise ValueError("An unknown trial has been passed in the request.")
            (metric,) = trial.status.observation.metrics
            assert metric.name == trial.spec.objective.objective_metric_name
            self.values[trial.name] = float(metric.value)

    def draw(self, request: messages.GetSuggestionsRequest) -> messages.GetSuggestionsReply:
        """As many random points as were asked for."""
        reply = messages.GetSuggestionsReply()
        for _ in range(request.current_request_number):
            point = reply.parameter_assignments.add()
            for parameter in request.experiment.spec.parameter_specs.parameters:
                point.assignments.add(name=parameter.name, value=self._value(parameter))
            self._known.add(_known(point.assignments))
        return reply

    def _value(self, parameter: messages.ParameterSpec) -> str:
        space = parameter.feasible_space
        if space.list:
            return self._random.choice(space.list)
        if parameter.parameter_type == messages.INT:
            step = int(space.step or 1)
            return str(self._random.randrange(int(space.min), int(space.max) + 1, step))
        low, high, step = float(space.min), float(space.max), float(space.step or 0)
        if step:
            return repr(low + self._random.randint(0, round((high - low) / step)) * step)
        return repr(self._random.uniform(low, high))


def _known(assignments: Sequence[Any]) -> Known:
    return tuple(sorted((one.name, one.value) for one in assignments))


def a_reply(*points: dict[str, str]) -> messages.GetSuggestionsReply:
    """An answer with these points."""
    reply = messages.GetSuggestionsReply()
    for point in points:
        added = reply.parameter_assignments.add()
        for name, value in point.items():
            added.assignments.add(name=name, value=value)
    return reply


def answers(reply: messages.GetSuggestionsReply | bytes) -> Misdeed:
    """Always says this."""

    async def misdeed(*_: Any) -> messages.GetSuggestionsReply | bytes:
        return reply

    return misdeed


@asynccontextmanager
async def katib_service(**given: Any) -> AsyncIterator[FakeKatibService]:
    """A service that runs."""
    service = FakeKatibService(**given)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
