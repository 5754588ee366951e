# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes turns on a device whose memory several programs share, one step at a time.

::

    from ullage_run import lanes

    lane = lanes.join(lanes.Torch())
    for batch in batches:
        with lane.step():
            train(batch)

A step waits until the program's lane is free, and ends when the device has done its work. Weights
stay in place; a step's allocations above them are freed only when another program waits for the
memory. Outside a lane (``ULLAGE_LANE`` unset) a step costs nothing and waits for nothing.

The node agent may restart at any time: the program reconnects and reports what it holds. While no
agent answers no step begins, because only the agent knows the use of the memory.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol

from ullage.api.environment import ENV_LANE, ENV_LANE_MEMORY
from ullage.api.lanes import (
    LINE_MAX,
    Acquire,
    Done,
    Empty,
    Grant,
    Hello,
    InLane,
    InQueue,
    LaneRefusal,
    Message,
    Refused,
    Release,
    decode,
    encode,
)
from ullage.api.readers import WireError
from ullage_run.times import LANE_QUICK_S, LANE_RELEASE_S, LANE_RETRY_LEAST_S, LANE_RETRY_MOST_S

MIB: Final = 1 << 20


class LaneRefused(RuntimeError):
    """The node refuses the program its lane or a step; ``reason`` is a one-word reason."""

    def __init__(self, reason: LaneRefusal, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason


class OutOfLane(MemoryError):
    """A step took more memory than its lane has, on a device that only counts memory."""


class Framework(Protocol):
    """Work of a framework at the boundaries of steps. Memory in MiB."""

    caches: bool
    """It keeps a step's memory until :meth:`empty`."""

    def limit(self, limit_mib: int) -> None:
        """Keep the process within this much memory, if the framework can."""
        ...

    def begin(self) -> None:
        """Begin a step: reset the measured peak."""
        ...

    def finish(self) -> None:
        """Wait until the device has done the step's work."""
        ...

    def empty(self) -> None:
        """Return the step's memory to the device."""
        ...

    def used(self) -> tuple[int, int]:
        """Persistent memory, and the last step's peak above it; 0 = not measured."""
        ...


class Plain:
    """A program without a framework, or one whose device work has ended when a step returns.

    Such a program may count its memory itself, so that a step beyond its lane is detected on a
    device that enforces nothing: ``plain.count(persistent, peak)`` within the step.
    """

    caches = False

    def __init__(self) -> None:
        self._kept_mib = self._peak_mib = 0

    def count(self, persistent_mib: int, peak_mib: int) -> None:
        """Report the program's persistent memory, and this step's peak above it."""
        self._kept_mib = persistent_mib
        self._peak_mib = max(self._peak_mib, peak_mib)

    def limit(self, limit_mib: int) -> None:
        """Do nothing: plain code has no limit."""

    def begin(self) -> None:
        """Begin a step."""
        self._peak_mib = 0

    def finish(self) -> None:
        """Do nothing: no work is under way when a step returns."""

    def empty(self) -> None:
        """Do nothing: no memory is kept."""

    def used(self) -> tuple[int, int]:
        """The counted memory."""
        return self._kept_mib, self._peak_mib


class JAX(Plain):
    """Waits for all JAX work under way on the local devices.

    Memory stays with JAX's allocator unless configured before it starts:
    ``XLA_PYTHON_CLIENT_ALLOCATOR=platform`` frees it at once; without that a lane's limit is the
    program's whole share.
    """

    def __init__(self, jax: Any = None) -> None:
        super().__init__()
        self._jax = jax

    def finish(self) -> None:
        """Wait for work that JAX has dispatched."""
        if self._jax is None:
            self._jax = import_module("jax")  # installed only in programs that use it
        for array in self._jax.live_arrays():
            array.block_until_ready()


class Torch:
    """Caps, synchronises and empties torch's caching allocator; does nothing without CUDA."""

    caches = True

    def __init__(self, torch: Any = None) -> None:
        # installed only in programs that use it
        self._torch = import_module("torch") if torch is None else torch
        self._kept = 0

    @property
    def _cuda(self) -> Any | None:
        cuda = self._torch.cuda
        return cuda if cuda.is_available() else None

    def limit(self, limit_mib: int) -> None:
        """Cap the process at this fraction of the device."""
        if (cuda := self._cuda) is not None:
            _, total = cuda.mem_get_info()
            cuda.set_per_process_memory_fraction(min(1.0, limit_mib * MIB / total))

    def begin(self) -> None:
        """Reset the peak."""
        if (cuda := self._cuda) is not None:
            self._kept = cuda.memory_allocated()
            cuda.reset_peak_memory_stats()

    def finish(self) -> None:
        """Wait for every stream."""
        if (cuda := self._cuda) is not None:
            cuda.synchronize()

    def empty(self) -> None:
        """Free cached blocks."""
        if (cuda := self._cuda) is not None:
            cuda.empty_cache()

    def used(self) -> tuple[int, int]:
        """Memory allocated when the step began, and the peak above it."""
        if (cuda := self._cuda) is None:
            return 0, 0
        peak = cuda.max_memory_reserved() - self._kept
        return -(-self._kept // MIB), max(0, -(-peak // MIB))


class Lane:
    """A program's place in its lane; one thread at a time takes steps. Made by :func:`join`.

    Args:
        path: The node's socket; "" = no lane.
        persistent_mib: Memory that stays between steps, MiB.
        ephemeral_mib: Peak of a step above it, MiB.
        framework: What to do at boundaries.
        patience_s: Longest wait for a lane, a turn or the node; ``None`` = for ever.
    """

    def __init__(
        self,
        path: str,
        persistent_mib: int,
        ephemeral_mib: int,
        framework: Framework,
        patience_s: float | None = None,
    ) -> None:
        self._path = path
        self._hello = (persistent_mib, ephemeral_mib)
        self._framework = framework
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._forget()
        if path:
            self._wired.add(self)

    _wired: Final[weakref.WeakSet[Lane]] = weakref.WeakSet()

    def _forget(self) -> None:
        self._session = os.urandom(16).hex()
        self._socket: socket.socket | None = None
        self._unread = b""
        self._lease = 0
        self._kept = 0
        self._limit_mib = 0
        self._iteration = 0
        self._ended_s = -math.inf
        self._quick = False
        self._unheard = False
        """True while the answer to the end of the last step is pending."""
        self.lane = 0
        """Number of the lane on its device; 0 = none yet."""
        self.waited_s = 0.0
        """Time spent waiting for turns."""

    @contextlib.contextmanager
    def step(self, ephemeral_mib: int = 0) -> Iterator[None]:
        """Run one step in the lane.

        Args:
            ephemeral_mib: Need of this step, if more than declared; 0 = as declared.

        Raises:
            LaneRefused: the node refuses it.
            OutOfLane: it took more than the lane has; raised when the step has ended.
            TimeoutError: no turn within the patience.
        """
        if not self._path:
            yield
            return
        with self._lock:
            self._acquire(ephemeral_mib)
            began = time.monotonic()
            self._framework.begin()
            try:
                yield
            finally:
                self._framework.finish()
                self._release(round((time.monotonic() - began) * 1000))

    def close(self) -> None:
        """Leave the lane: the program has no more memory on the device.

        The node reclaims the memory when the process has ended, for any reason.
        """
        with self._lock:
            if self._kept:
                self._framework.empty()
            if self._unheard:  # else the node could lose the end of the last step
                until = time.monotonic() + LANE_RELEASE_S
                with contextlib.suppress(ConnectionError, TimeoutError, WireError):
                    while not isinstance(self._hear(until), Done | Refused):
                        pass
            self._hang_up()

    def __enter__(self) -> Lane:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- the two halves of a step ----------------------------------------------------------------

    def _acquire(self, ephemeral_mib: int) -> None:
        asked = time.monotonic()
        self._quick = asked - self._ended_s <= LANE_QUICK_S
        until = None if self._patience_s is None else asked + self._patience_s
        self._iteration += 1
        message = Acquire(iteration=self._iteration, ephemeral_mib=ephemeral_mib)
        pause = LANE_RETRY_LEAST_S
        while True:
            try:
                self._connected(until)
                self._say(message)
                self._granted(until)
                break
            except (ConnectionError, FileNotFoundError, WireError):
                self._hang_up()
                pause = _wait(pause, until)
            except BaseException:
                self._hang_up()  # else the node would grant a step that is never taken
                raise
        self.waited_s += time.monotonic() - asked

    def _granted(self, until: float | None) -> None:
        while True:
            answer = self._hear(until)
            if isinstance(answer, Grant):
                self._lease, self._kept = answer.lease, 0
                return
            if isinstance(answer, Empty) and answer.lease == self._kept:
                self._framework.empty()
                self._kept = 0
                self._say(Release(lease=answer.lease, emptied=True))
            elif self._unheard and isinstance(answer, Done | Refused):
                self._unheard = False  # a lease unknown to the node need not be ended
            elif isinstance(answer, Refused):
                raise _refused(answer)

    def _release(self, step_ms: int) -> None:
        kept_mib, peak_mib = self._framework.used()
        lease, self._lease = self._lease, 0
        message = Release(
            lease=lease,
            emptied=not self._framework.caches,
            peak_mib=peak_mib,
            persistent_mib=kept_mib,
            step_ms=step_ms,
        )
        self._ended_s = time.monotonic()
        until = self._ended_s + LANE_RELEASE_S
        pause = LANE_RETRY_LEAST_S
        while True:
            try:
                if self._socket is None and self._greet(lease, until) != lease:
                    return
                self._say(message)
                if self._quick and self._needs_no_answer(message):
                    self._unheard = True
                    return
                if not self._released(lease):
                    return
                self._framework.empty()
                message = replace(message, emptied=True)
            except (ConnectionError, FileNotFoundError, WireError, TimeoutError):
                self._hang_up()
                # The node's grants meanwhile are unknown: no memory may be kept.
                self._framework.empty()
                message = replace(message, emptied=True)
                if time.monotonic() >= until:
                    return  # the next step's greeting ends the lease; until then it stays ours
                pause = _wait(pause, None)

    def _needs_no_answer(self, message: Release) -> bool:
        """True if a step kept nothing and took no more than was declared."""
        persistent_mib, ephemeral_mib = self._hello
        declared = message.persistent_mib <= persistent_mib and message.peak_mib <= ephemeral_mib
        return declared and not self._framework.caches

    def _released(self, lease: int) -> bool:
        """True if the node requests the memory of the step first."""
        while True:
            answer = self._hear(None)
            if isinstance(answer, Done):
                self._kept = lease if answer.kept else 0
                return False
            if isinstance(answer, Empty) and answer.lease == lease:
                return True
            if isinstance(answer, Refused):
                if answer.reason is LaneRefusal.EXCEEDS_LANE:
                    raise OutOfLane(answer.message)
                if answer.reason is not LaneRefusal.LEASE_UNKNOWN:
                    raise _refused(answer)
                return False

    # -- connection ------------------------------------------------------------------------------

    def _connected(self, until: float | None) -> None:
        """Be connected and in a lane.

        Raises:
            ConnectionError, FileNotFoundError: no node answers.
            LaneRefused: it does, and refuses.
        """
        if self._socket is not None:
            return
        if self._kept:
            self._framework.empty()
            self._kept = 0
        self._greet(0, until)

    def _dial(self) -> None:
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            wire.connect(self._path)
        except OSError:
            wire.close()
            raise
        self._socket, self._unread = wire, b""

    def _greet(self, lease: int, until: float | None) -> int:
        """Connect, and report the lease held.

        Returns:
            The lease known to the node.
        """
        if self._socket is None:
            self._dial()
        persistent_mib, ephemeral_mib = self._hello
        pause = LANE_RETRY_LEAST_S
        while True:
            self._say(
                Hello(
                    session=self._session,
                    persistent_mib=persistent_mib,
                    ephemeral_mib=ephemeral_mib,
                    caches=self._framework.caches,
                    lease=lease,
                )
            )
            answer = self._hear(until)
            while isinstance(answer, InQueue):
                answer = self._hear(until)
            if isinstance(answer, InLane):
                return answer.lease
            if not isinstance(answer, Refused):
                raise WireError(f"{type(answer).__name__} is no answer to a greeting")
            if answer.reason is not LaneRefusal.BUSY:
                raise _refused(answer)
            pause = _wait(pause, until)  # an earlier process of the container is ending

    def _say(self, message: Message) -> None:
        assert self._socket is not None
        self._socket.sendall(encode(message))

    def _hear(self, until: float | None) -> Message:
        """The next message.

        Raises:
            ConnectionError: the node is not reachable.
            TimeoutError: no message in time.
            WireError: it is not a message.
        """
        assert self._socket is not None
        while b"\n" not in self._unread:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("the lane is not free within the patience")
            self._socket.settimeout(left)
            try:
                more = self._socket.recv(LINE_MAX)
            except TimeoutError:
                raise TimeoutError("the lane is not free within the patience") from None
            finally:
                self._socket.settimeout(None)
            if not more:
                raise ConnectionResetError("the node ended the connection")
            self._unread += more
            if len(self._unread) > 2 * LINE_MAX:
                raise WireError("the node says too much at once")
        line, _, self._unread = self._unread.partition(b"\n")
        message = decode(line + b"\n")
        if isinstance(message, InLane):
            self._placed(message)
        return message

    def _placed(self, message: InLane) -> None:
        self.lane = message.lane
        if message.limit_mib != self._limit_mib:
            self._limit_mib = message.limit_mib
            self._framework.limit(message.limit_mib)

    def _hang_up(self) -> None:
        wire, self._socket = self._socket, None
        self._unread, self._unheard = b"", False
        if wire is not None:
            wire.close()

    def _in_child(self) -> None:
        """Reset a forked child, which shares neither connection nor lease."""
        self._hang_up()
        self._lock = threading.Lock()
        self._forget()


def _wait(pause: float, until: float | None) -> float:
    """Sleep before a retry, at random within the pause; returns the next pause."""
    if until is not None and time.monotonic() >= until:
        raise TimeoutError("no node gives the program a lane within the patience")
    time.sleep(pause * random.uniform(0.5, 1.0))
    return min(2 * pause, LANE_RETRY_MOST_S)


def _refused(answer: Refused) -> LaneRefused:
    return LaneRefused(answer.reason or LaneRefusal.UNREADABLE, answer.message)


def join(
    framework: Framework | None = None,
    persistent_mib: int | None = None,
    ephemeral_mib: int | None = None,
    patience_s: float | None = None,
) -> Lane:
    """Join the lane that the container's slice requests.

    Args:
        framework: What to do at boundaries; ``None`` = :class:`Plain`.
        persistent_mib: Memory that stays between steps, MiB; ``None`` = from the workload.
        ephemeral_mib: Peak of a step above it, MiB; ``None`` = from the workload.
        patience_s: Longest wait of a step for its turn; ``None`` = for ever.

    Raises:
        ValueError: neither the caller nor the workload gives the memory.
    """
    path = os.environ.get(ENV_LANE, "")
    declared = os.environ.get(ENV_LANE_MEMORY, "").split(",")
    if path and (persistent_mib is None or ephemeral_mib is None):
        if len(declared) != 2 or not all(number.isdigit() for number in declared):
            raise ValueError(f"{ENV_LANE_MEMORY} does not say persistent and ephemeral memory")
        persistent_mib = int(declared[0]) if persistent_mib is None else persistent_mib
        ephemeral_mib = int(declared[1]) if ephemeral_mib is None else ephemeral_mib
    return Lane(path, persistent_mib or 0, ephemeral_mib or 0, framework or Plain(), patience_s)


def _in_child() -> None:
    for lane in tuple(Lane._wired):
        lane._in_child()


os.register_at_fork(after_in_child=_in_child)
