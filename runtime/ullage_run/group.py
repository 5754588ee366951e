# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A member of a job in tiers: owns shards of its state, computes on blocks of its data.

::

    group = Group.join(state)  # state: values(shard), take(shard, data), drop(shard)

    def train(step):
        local = compute(group.blocks, step)
        parts = group.gather(local)        # what all members gave, by name
        state.apply(step, parts)

    ending = group.run(train, until=10_000)

Members join and leave between the steps and during them: a step that cannot be finished is repeated
by the remaining members, with the same data. ``train`` must therefore change no lasting state
before its last gathering has returned. It must never push under maps that other members lack.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ullage_run
from ullage_run import frames
from ullage_run.backup import EpochChanged, StateTooLarge
from ullage_run.frames import Buffer, Ending, Frame, FrameError, FrameKind
from ullage_run.handshake import NotThisJob, Role, introduce, token_of
from ullage_run.holding import HeldShards, State, StateFetch
from ullage_run.notices import Notice
from ullage_run.orders import (
    ENV_EVERY,
    ENV_KEEPER,
    ENV_LAG,
    ENV_LEAD,
    ENV_TOKEN,
    MAX_DIGITS,
    MAX_ORDER_BYTES,
    MAX_PARTS_BYTES,
    Identity,
    MemberAssignment,
    decode_parts,
)
from ullage_run.times import BEAT_S, JOIN_RETRY_S, JOIN_S, MEMBER_CONNECT_S, NOTICE_GRACE_S

_VOID: Final = (FrameKind.ASSIGN, FrameKind.LEAVE, FrameKind.FLUSH)
"""A step in progress is void after these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A message of the coordinator; new maps have the fetch of their shards, already under way."""

    frame: Frame
    data: bytes
    assignment: MemberAssignment | None = None
    fetch: StateFetch | None = None


class MembersChanged(RuntimeError):
    """The step cannot be finished with its members; it is repeated."""


class CoordinatorUnavailable(ConnectionError):
    """The job's coordinator does not answer; the text names it."""


class Group:
    """This member's side of the channel to its coordinator.

    Args:
        coordinator: Host and port.
        state_store: Host and port of the state store.
        identity: This member's identity.
        state: The program's state.
        token: The job's token.
        at_step: Step of the values of ``take(shard, None)``: of a checkpoint, else 0.
        every_steps: Steps between two pushes.
        max_lag_steps: Most steps by which the job may be ahead of the copy.
        bytes_per_s: Most that is sent to the state store; ``None`` = as fast as the link.
    """

    def __init__(
        self,
        coordinator: tuple[str, int],
        state_store: tuple[str, int],
        identity: Identity,
        state: State,
        *,
        token: bytes = b"",
        at_step: int = 0,
        every_steps: int = 1,
        max_lag_steps: int = 2,
        bytes_per_s: float | None = None,
    ) -> None:
        self.identity = identity
        self.assignment = MemberAssignment(shards=())
        self.epoch = 0
        self._holding = HeldShards(
            state,
            state_store,
            token=token,
            every_steps=every_steps,
            max_lag_steps=max_lag_steps,
            bytes_per_s=bytes_per_s,
        )
        self._last = at_step
        self._step = at_step
        self._counted: int | None = None
        self._gathered = 0
        self._changed = threading.Condition()
        self._inbox: deque[_Order] = deque()
        self._lost: OSError | None = None
        self._sending = threading.Lock()
        self._link = _connect(coordinator, token)
        self._send(Frame(kind=FrameKind.JOIN, step=at_step), identity.encode())
        threading.Thread(target=self._listen, name="ullage-group", daemon=True).start()
        threading.Thread(target=self._beat, name="ullage-beat", daemon=True).start()

    @classmethod
    def join(cls, state: State, *, at_step: int = 0, environment: Mapping[str, str] | None = None,
             **how: int) -> Group:  # fmt: skip
        """Join the job of this pod, from the environment that the operator sets.

        Raises:
            ValueError: this process is not a member of a job in tiers, or its token file is empty.
            OSError: the token file cannot be read.
            CoordinatorUnavailable: the coordinator did not answer in time, or is not this job's.
        """
        env = os.environ if environment is None else environment
        identity = Identity.from_environment(env)
        token = env.get(ENV_TOKEN, "")
        return cls(
            _address(env, ENV_LEAD),
            _address(env, ENV_KEEPER),
            identity,
            state,
            token=token_of(Path(token) if token else None),
            at_step=at_step,
            **(_steps(env) | how),
        )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of data assigned to this member."""
        return self.assignment.blocks

    @property
    def step(self) -> int:
        """The step of this member's current shards."""
        return self._last

    @property
    def shards(self) -> tuple[int, ...]:
        """Shards that this member owns."""
        return self.assignment.shards

    def run(
        self, train: Callable[[int], None], *, until: int, grace_s: float = NOTICE_GRACE_S
    ) -> Ending:
        """Follow the coordinator until the last step is finished, or this member must leave.

        Args:
            train: Does one step, given its number.
            until: The last step.
            grace_s: Seconds that SIGTERM leaves.

        Raises:
            CoordinatorUnavailable: the coordinator is gone.
            StateTooLarge: the state does not fit into its copy; raised on all members.
            RuntimeError: the copy is not of the step named by the coordinator.
            Exception: from ``train``.
        """

        def leave(_: Notice) -> None:
            left_ms = str(int(grace_s * 1000)).encode()
            threading.Thread(target=self._say_leaving, args=(left_ms,), daemon=True).start()

        ullage_run.on_notice(leave)
        while True:
            order = self._next()
            frame = order.frame
            try:
                if frame.kind is FrameKind.LEAVE:
                    if frame.flags == Ending.TOO_LARGE:  # ignoring it must not look like success
                        raise StateTooLarge(order.data.decode(errors="replace"))
                    return Ending(frame.flags)
                if frame.kind is FrameKind.ASSIGN:
                    self._carry_out(order)
                elif frame.kind is FrameKind.FLUSH:
                    self._flush(frame)
                elif frame.kind is FrameKind.GO and frame.epoch == self.epoch:
                    self._do(frame.step, train, until)
            except (MembersChanged, EpochChanged):
                continue  # the coordinator has detected it: new maps follow

    def gather(self, data: Buffer) -> dict[str, bytes]:
        """Send data to all members, and return the data of each.

        Every member gathers equally often in a step.

        Args:
            data: Any bytes; at most 64 MiB for all members together.

        Raises:
            MembersChanged: a member is gone; abandon the step.
        """
        self._gathered += 1
        number = self._gathered
        frame = Frame(kind=FrameKind.PART, shard=number, epoch=self.epoch, step=self._step)
        self._send(frame, data)

        def mine() -> bool:
            return any(order.frame.kind in (*_VOID, FrameKind.PARTS) for order in self._inbox)

        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lost is not None or mine())
                self._raise_if_lost()
                if any(order.frame.kind in _VOID for order in self._inbox):
                    raise MembersChanged(f"step {self._step} is done again with others")
                order = self._inbox.popleft()
            answer = order.frame
            if (answer.shard, answer.epoch, answer.step) == (number, self.epoch, self._step):
                return decode_parts(order.data)

    def close(self) -> None:
        """End the connection and pushes under way."""
        self._holding.break_off()
        self._link.close()

    def _do(self, step: int, train: Callable[[int], None], until: int) -> None:
        self._holding.settle()
        self._step, self._gathered = step, 0
        if step - 1 != self._counted:  # a later member begins there; after a rollback, again
            ullage_run.resumed(step - 1)
        train(step)
        self._counted = step
        self._holding.push(step)
        self._last = step
        self._send(Frame(kind=FrameKind.DONE, epoch=self.epoch, step=step, flags=step >= until))

    def _carry_out(self, order: _Order) -> None:
        """Apply new maps, and report to the coordinator."""
        given, fetch, frame = order.assignment, order.fetch, order.frame
        assert given is not None
        assert fetch is not None
        self._holding.take(frame.step, frame.epoch, given, fetch)
        self.assignment, self.epoch, self._last = given, frame.epoch, frame.step
        self._send(Frame(kind=FrameKind.READY, epoch=self.epoch, step=self._last))

    def _flush(self, frame: Frame) -> None:
        committed = self.assignment.committed
        self._holding.flush(self._last, self.epoch, committed, whole=bool(frame.flags))
        self._send(Frame(kind=FrameKind.FLUSHED, epoch=self.epoch, step=self._last))

    def _next(self) -> _Order:
        with self._changed:
            self._changed.wait_for(lambda: self._lost is not None or bool(self._inbox))
            if not self._inbox:
                self._raise_if_lost()
            return self._inbox.popleft()

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise CoordinatorUnavailable(
                f"the job's coordinator is gone: {self._lost}"
            ) from self._lost

    def _listen(self) -> None:
        """Read orders; new maps abort pushes under way, and start the load of their shards."""
        error: OSError | None = None
        while error is None:
            try:
                order = self._read()
            except OSError as failure:
                error = failure
            if error is not None or order.frame.kind is FrameKind.LEAVE:
                self._holding.break_off()
            with self._changed:
                if error is None:
                    self._inbox.append(order)
                self._lost = error
                self._changed.notify_all()

    def _read(self) -> _Order:
        frame = frames.receive(self._link)
        most = MAX_PARTS_BYTES if frame.kind is FrameKind.PARTS else MAX_ORDER_BYTES
        data = bytes(frames.payload(self._link, frame, most))
        if frame.kind is FrameKind.REFUSED:
            raise FrameError(f"the coordinator refuses: {data.decode(errors='replace')}")
        if frame.kind is not FrameKind.ASSIGN:
            return _Order(frame=frame, data=data)
        given = MemberAssignment.decode(data)
        fetch = self._holding.prepare(frame.step, given)
        return _Order(frame=frame, data=data, assignment=given, fetch=fetch)

    def _beat(self) -> None:
        while self._lost is None:
            time.sleep(BEAT_S)
            try:
                self._send(Frame(kind=FrameKind.BEAT))
            except CoordinatorUnavailable:
                return

    def _say_leaving(self, left_ms: bytes) -> None:
        """Runs in its own thread: the signal may have interrupted one that is sending."""
        try:
            self._send(Frame(kind=FrameKind.LEAVING), left_ms)
        except CoordinatorUnavailable:
            return  # the main thread gets the error too

    def _send(self, frame: Frame, data: Buffer = b"") -> None:
        try:
            with self._sending:
                frames.send(self._link, frame, data)
        except OSError as error:
            raise CoordinatorUnavailable(f"the job's coordinator is gone: {error}") from error


def _connect(address: tuple[str, int], token: bytes) -> socket.socket:
    until = time.monotonic() + JOIN_S
    where = f"{address[0]}:{address[1]}"
    while True:
        try:
            return _introduced(address, token)
        except (NotThisJob, FrameError) as error:
            raise CoordinatorUnavailable(f"coordinator {where}: {error}") from error
        except OSError as error:
            if time.monotonic() > until:
                raise CoordinatorUnavailable(
                    f"no coordinator at {where} after {JOIN_S:g} s: {error}"
                ) from error
            time.sleep(JOIN_RETRY_S)


def _introduced(address: tuple[str, int], token: bytes) -> socket.socket:
    """An authenticated connection to a coordinator."""
    link = socket.create_connection(address, timeout=MEMBER_CONNECT_S)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        introduce(link, token, Role.COORDINATOR)
        link.settimeout(None)
    except BaseException:
        link.close()
        raise
    return link


def _address(env: Mapping[str, str], key: str) -> tuple[str, int]:
    if not env.get(key):
        raise ValueError(f"{key} is not set: this is no member of a job in tiers")
    return frames.address_of(env[key], key)


def _steps(env: Mapping[str, str]) -> dict[str, int]:
    """Steps between pushes, and steps that members may be ahead of the copy, if set by the job."""
    known = {"every_steps": ENV_EVERY, "max_lag_steps": ENV_LAG}
    steps: dict[str, int] = {}
    for name, key in known.items():
        value = env.get(key, "")
        is_number = value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS
        if value and not (is_number and int(value)):
            raise ValueError(f"{key} is no number of steps: {value!r}")
        if value:
            steps[name] = int(value)
    return steps
