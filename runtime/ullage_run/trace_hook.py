# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces some steps of this rank when the node agent orders it (:mod:`ullage.api.captures`).

Between orders a step costs the comparison of one mapped word. An order names its first step, so all
ranks trace the same ones; a rank that is past it reports so. The program has priority: its own
profiler ends ours, an error here costs only the trace, and a trace that is not written when the
program ends is dropped.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gzip
import json
import mmap
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from importlib import import_module
from time import monotonic_ns
from types import ModuleType
from typing import Any, Final

from ullage.api.captures import (
    ARMED_BYTES,
    ARMED_FILE,
    CAPTURE_STEPS_MOST,
    METADATA,
    ORDER_BYTES_MOST,
    ORDER_FILE,
    RAW_PREFIX,
    REFUSAL_BYTES_MOST,
    REFUSED_SUFFIX,
    TRACE_BYTES_MOST,
    TRACE_SUFFIX,
    UNFINISHED_SUFFIX,
    CaptureRefusal,
)
from ullage_run.rank_record import RankWriter
from ullage_run.times import TRACE_AT_EXIT_S

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PIECE: Final = 1 << 20
LEVEL: Final = 3
"""Compression level: a third of the time of the default for a tenth more bytes."""
TEXT_MOST: Final = 300
PREPARE: Final = "_prepare_profiler"
ENABLE: Final = "_enable_profiler"
DISABLE: Final = "_disable_profiler"
"""Functions of ``torch.autograd.profiler`` that every profiler of a program calls."""


class CaptureRefused(Exception):
    """This rank has no trace; ``reason`` says why in one word."""

    def __init__(self, reason: CaptureRefusal, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """An order as it was read: ``steps`` steps from ``start`` on, counted as the record does."""

    id: str
    start: int
    steps: int
    stacks: bool
    shapes: bool
    ranks: tuple[int, ...] | None


class TraceHook:
    """Carries out orders for this process, one at a time.

    Args:
        writer: The rank's record; its count of steps is the one that orders mean.
    """

    def __init__(self, writer: RankWriter) -> None:
        self._writer = writer
        self._reset()
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        self._armed: memoryview | None = None
        self._mapped = False
        self._seen = 0
        self._order: ReadOrder | None = None
        self._profile: Any = None
        self._starting = False
        """Our own profiler is being started or stopped."""
        self._theirs = False
        """The program's profiler is prepared or runs."""
        self._writing: threading.Thread | None = None
        self._dropped = threading.Event()

    def watch(self, profiler: ModuleType) -> None:
        """Learn of the program's own profilers, which go first.

        Args:
            profiler: ``torch.autograd.profiler``.
        """
        for name, runs in ((PREPARE, True), (ENABLE, True), (DISABLE, False)):
            function = getattr(profiler, name, None)
            if callable(function):
                setattr(profiler, name, self._watched(function, runs))

    def _watched(self, function: Any, runs: bool) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self._starting:
                self._theirs = runs
                if runs and self._profile is not None:
                    self._give_way()
            return function(*args, **kwargs)

        return watched

    def stepped(self) -> None:
        """A step was counted; never raises."""
        armed = self._armed
        if armed is None:
            if not self._mapped:
                self._map()
            return
        if armed[0] != self._seen or self._order is not None:
            self._turn(armed)

    def forget(self) -> None:
        """In a forked child: what is under way is the parent's."""
        self._reset()

    def _map(self) -> None:
        folder = self._writer.folder
        if folder is None or not self._writer.open():
            return
        self._mapped = True
        with contextlib.suppress(OSError, ValueError):  # an agent that places no orders
            file = os.open(os.path.join(folder, ARMED_FILE), os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapped = mmap.mmap(file, ARMED_BYTES, prot=mmap.PROT_READ)
                self._armed = memoryview(mapped).cast("Q")
            finally:
                os.close(file)

    def _turn(self, armed: memoryview) -> None:
        if self._profile is None and armed[0] != self._seen:
            self._seen = armed[0]
            self._order = self._read()
        order = self._order
        if order is None:
            return
        try:
            if self._profile is None:
                self._begin(order)
            elif self._writer.steps >= order.start + order.steps:
                self._order = None
                self._finish(order)
            else:
                self._profile.step()
        except CaptureRefused as error:
            self._refuse(order, error.reason, str(error))
        except Exception as error:  # torch's profiler may fail in any way, the program must not
            self._refuse(order, CaptureRefusal.FAILED, f"{type(error).__name__}: {error}")

    def _read(self) -> ReadOrder | None:
        """The order that is placed, if it is for this rank."""
        assert self._writer.folder is not None
        try:
            with open(os.path.join(self._writer.folder, ORDER_FILE), "rb") as file:
                body = json.loads(file.read(ORDER_BYTES_MOST))
            ranks = body["ranks"]
            order = ReadOrder(
                id=os.path.basename(str(body["id"])),
                start=int(body["startStep"]),
                steps=min(max(int(body["steps"]), 1), CAPTURE_STEPS_MOST),
                stacks=body["stacks"] is True,
                shapes=body["shapes"] is True,
                ranks=None if ranks is None else tuple(map(int, ranks)),
            )
        except FileNotFoundError:  # it was taken back
            return None
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            _complain(f"an order of a trace cannot be read: {error}")
            return None
        return order if order.ranks is None or self._writer.rank in order.ranks else None

    def _begin(self, order: ReadOrder) -> None:
        steps = self._writer.steps
        if steps < order.start:
            return
        if steps > order.start:
            raise CaptureRefused(
                CaptureRefusal.LATE,
                f"{steps} steps were done when the order for step {order.start} was read",
            )
        if self._writing is not None and self._writing.is_alive():
            raise CaptureRefused(CaptureRefusal.FAILED, "the last trace is not written yet")
        try:
            profiler = import_module("torch.profiler")
            autograd = import_module("torch.autograd")
        except ImportError as error:
            raise CaptureRefused(CaptureRefusal.NO_PROFILER, str(error)) from error
        if not autograd.kineto_available():
            raise CaptureRefused(CaptureRefusal.NO_PROFILER, "this torch is built without Kineto")
        if self._theirs or autograd._profiler_enabled():
            raise CaptureRefused(
                CaptureRefusal.ALREADY_PROFILING, "the program's own profiler is running"
            )
        activities = [profiler.ProfilerActivity.CPU]
        if import_module("torch").cuda.is_initialized():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._starting = True
        try:
            profile = profiler.profile(
                activities=activities, record_shapes=order.shapes, with_stack=order.stacks
            )
            # each step is marked by its number, as with a schedule, which would warn of no warm-up
            profile.record_steps, profile.step_num = True, order.start
            profile.start()
        finally:
            self._starting = False
        self._profile = profile

    def _finish(self, order: ReadOrder) -> None:
        profile, began = self._profile, order.start
        body = {
            "id": order.id,
            "rank": self._writer.rank,
            "world": self._writer.world,
            "step": began,
            "steps": order.steps,
            "monotonicNs": monotonic_ns(),
        }
        profile.add_metadata_json(METADATA, json.dumps(body))
        self._stop()
        path = _raw_path(self._writer.folder or "")
        try:
            profile.export_chrome_trace(path)
        except BaseException:
            _remove(path)
            raise
        # compressing lets other threads run, so training goes on meanwhile
        self._dropped.clear()
        self._writing = threading.Thread(
            target=self._write, args=(order, path), name="ullage-trace", daemon=True
        )
        self._writing.start()

    def _stop(self) -> None:
        """Stop our profiler."""
        profile, self._profile = self._profile, None
        self._starting = True
        try:
            profile.stop()
        finally:
            self._starting = False

    def _give_way(self) -> None:
        """The program starts a profiler while ours runs: drop ours."""
        order, self._order = self._order, None
        with contextlib.suppress(Exception):  # torch's profiler may fail in any way
            self._stop()
        if order is not None:
            text = "the program started its own profiler during the trace"
            self._answer_refusal(order, CaptureRefusal.ALREADY_PROFILING, text)

    def _write(self, order: ReadOrder, raw: str) -> None:
        """Compress a trace into its place; a thread of its own."""
        place = self._place(order, TRACE_SUFFIX)
        beside = place + UNFINISHED_SUFFIX
        try:
            self._compress(raw, beside)
            os.rename(beside, place)
        except CaptureRefused as error:
            _remove(beside)
            self._answer_refusal(order, error.reason, str(error))
        except OSError as error:
            _remove(beside)
            full = error.errno in FULL
            reason = CaptureRefusal.DISK_FULL if full else CaptureRefusal.FAILED
            self._answer_refusal(order, reason, str(error))
        finally:
            _remove(raw)

    def _compress(self, raw: str, beside: str) -> None:
        size = os.path.getsize(raw)
        if size > TRACE_BYTES_MOST:
            raise CaptureRefused(
                CaptureRefusal.FAILED,
                f"the trace takes {size >> 20} MiB, at most {TRACE_BYTES_MOST >> 20}: trace fewer"
                " steps, without stacks and shapes",
            )
        last = b""
        with (
            open(raw, "rb") as source,
            open(beside, "wb") as target,
            gzip.GzipFile("", "wb", LEVEL, target, mtime=0) as packed,
        ):
            while piece := source.read(PIECE):
                if self._dropped.is_set():
                    raise CaptureRefused(CaptureRefusal.FAILED, "the program ended meanwhile")
                packed.write(piece)
                last = piece
        if not last.rstrip().endswith(b"}"):  # torch reports no error of a full disk
            raise CaptureRefused(CaptureRefusal.DISK_FULL, f"no room for the trace in {raw}")

    def _refuse(self, order: ReadOrder, reason: CaptureRefusal, text: str) -> None:
        self._order = None
        if self._profile is not None:
            with contextlib.suppress(Exception):  # torch's profiler may fail in any way
                self._stop()
        self._answer_refusal(order, reason, text)

    def _answer_refusal(self, order: ReadOrder, reason: CaptureRefusal, text: str) -> None:
        body = json.dumps({"reason": reason.value, "text": text[:TEXT_MOST]}).encode()
        if len(body) > REFUSAL_BYTES_MOST:
            plain = text.encode("ascii", "replace").decode()[: TEXT_MOST // 2]
            body = json.dumps({"reason": reason.value, "text": plain}).encode()
        place = self._place(order, REFUSED_SUFFIX)
        try:
            with open(place + UNFINISHED_SUFFIX, "wb") as file:
                file.write(body)
            os.rename(place + UNFINISHED_SUFFIX, place)
        except OSError as error:
            _complain(f"no trace ({reason.value}), and no room to say so: {error}")

    def _place(self, order: ReadOrder, suffix: str) -> str:
        name = f"{order.id}-{self._writer.index}{suffix}"
        return os.path.join(self._writer.folder or "", name)

    def _at_exit(self) -> None:
        """Let a trace that is being written finish, for a moment."""
        writing = self._writing
        if writing is not None and writing.is_alive():
            writing.join(TRACE_AT_EXIT_S)
            self._dropped.set()
            writing.join(TRACE_AT_EXIT_S)


def _raw_path(folder: str) -> str:
    """A new file for the trace as torch writes it, outside of the capped directory if possible."""
    try:
        handle, path = tempfile.mkstemp(prefix="ullage-trace-", suffix=".json")
    except OSError:  # a read-only container without /tmp
        handle, path = tempfile.mkstemp(prefix=RAW_PREFIX, suffix=".json", dir=folder)
    os.close(handle)
    return path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _complain(text: str) -> None:
    """Write a line to standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        print(f"ullage: {text}", file=sys.stderr, flush=True)
