# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102
"""The only access to NVML: the functions that are used, and the one thread that calls them.

NVML calls block, sometimes for ever when a driver hangs, and the library works best with one
caller. So every call of the agent runs on one dedicated thread, with a deadline for the caller, and
goes through :class:`NvmlApi`: the module ``pynvml`` itself in production, an in-memory fake in
tests. Nothing else may import ``pynvml``.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar, cast

import pynvml

from ullage_node.times import NVML_S

NvmlError: Final[type[Exception]] = pynvml.NVMLError
"""Base of all errors of the library; ``str`` gives NVML's own words."""

NO_INSTANCE: Final = 0xFFFFFFFF
"""Instance number where there is no instance (nvmlEventData_t)."""

Result = TypeVar("Result")


class NvmlStuck(Exception):
    """The library has not answered in time; later calls are refused until it does."""


class NvmlMemory(Protocol):
    """Memory of a device, bytes."""

    total: int
    used: int


class Process(Protocol):
    """A process that uses a device; its memory in bytes, ``None`` = unknown."""

    pid: int
    usedGpuMemory: int | None  # NVML's spelling


class NvmlEvent(Protocol):
    """An event of a device; for a critical error ``eventData`` is the Xid.

    ``gpuInstanceId`` names the part of a GPU in MIG mode, :data:`NO_INSTANCE` = the whole GPU.
    """

    device: object
    eventType: int
    eventData: int
    gpuInstanceId: int


class Attributes(Protocol):
    """The part of its GPU that a MIG device has."""

    multiprocessorCount: int
    gpuInstanceSliceCount: int


class FieldValue(Protocol):
    """One field of a device, valid when ``nvmlReturn`` is 0."""

    nvmlReturn: int

    @property
    def value(self) -> FieldNumber:
        """The number, in a union of types."""
        ...


class FieldNumber(Protocol):
    """The member of NVML's value union that is read here."""

    uiVal: int


class NvmlApi(Protocol):
    """The functions of ``pynvml`` that the backend calls, under their own names (see NVML)."""

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object: ...
    def nvmlDeviceGetUUID(self, handle: object) -> str: ...
    def nvmlDeviceGetName(self, handle: object) -> str: ...
    def nvmlDeviceGetMinorNumber(self, handle: object) -> int: ...
    def nvmlDeviceGetMemoryInfo(self, handle: object) -> NvmlMemory: ...
    def nvmlSystemGetCudaDriverVersion(self) -> int: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: object) -> Sequence[int]: ...
    def nvmlDeviceGetComputeMode(self, handle: object) -> int: ...
    def nvmlDeviceGetNumGpuCores(self, device: object) -> int: ...
    def nvmlDeviceGetMigMode(self, device: object) -> Sequence[int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, device: object) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: object, index: int) -> object: ...
    def nvmlDeviceGetGpuInstanceId(self, device: object) -> int: ...
    def nvmlDeviceGetComputeInstanceId(self, device: object) -> int: ...
    def nvmlDeviceGetAttributes_v2(self, device: object) -> Attributes: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> Sequence[Process]: ...
    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: object) -> Sequence[Process]: ...
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: object) -> int: ...
    def nvmlDeviceGetRemappedRows(self, device: object) -> Sequence[int]: ...
    def nvmlDeviceGetFieldValues(
        self, handle: object, fieldIds: Sequence[int]
    ) -> Sequence[FieldValue]: ...
    def nvmlDeviceGetSupportedEventTypes(self, handle: object) -> int: ...
    def nvmlDeviceRegisterEvents(
        self, handle: object, eventTypes: int, eventSet: object
    ) -> None: ...
    def nvmlEventSetCreate(self) -> object: ...
    def nvmlEventSetWait_v2(self, eventSet: object, timeoutms: int) -> NvmlEvent: ...
    def nvmlEventSetFree(self, eventSet: object) -> None: ...


def load_nvml() -> NvmlApi:
    """The real library; it opens ``libnvidia-ml.so.1`` at ``nvmlInit``, not before."""
    return cast(NvmlApi, pynvml)


class NvmlThread:
    """Runs calls one after another on its own thread.

    The thread is a daemon: a hanging driver must not keep the agent from exiting. At most one call
    is outstanding; while one hangs, further calls fail at once instead of queueing behind it.
    """

    def __init__(self, api: NvmlApi, deadline_seconds: float = NVML_S) -> None:
        self._api = api
        self._deadline_seconds = deadline_seconds
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._answered: Callable[[], bool] = _yes
        self._turn = asyncio.Lock()

    async def call(self, work: Callable[[NvmlApi], Result]) -> Result:
        """Run ``work`` on the thread; returns or raises as it does.

        Raises:
            NvmlStuck: no answer within the deadline, an earlier call still hangs, or no thread can
                be started.
        """
        async with self._turn:
            if not self._answered():
                raise NvmlStuck("NVML still hangs in an earlier call; the driver may need a reset")
            future = self._submit(work)
            self._answered = future.done
            try:
                async with asyncio.timeout(self._deadline_seconds):
                    return await asyncio.wrap_future(future)
            except TimeoutError:
                raise NvmlStuck(
                    f"NVML did not answer within {self._deadline_seconds:g} s"
                ) from None

    def stop(self) -> None:
        """Let the thread end after its current call; a later call starts another one."""
        self._jobs.put(None)
        self._thread = None

    def _submit(self, work: Callable[[NvmlApi], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(self._api))
            except BaseException as error:  # outermost of this thread: handed to the waiter
                future.set_exception(error)

        if self._thread is None:
            self._jobs = queue.SimpleQueue()
            thread = threading.Thread(target=_serve, args=(self._jobs,), name="nvml", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise NvmlStuck(f"NVML cannot be called: no thread ({error})") from error
            self._thread = thread
        self._jobs.put(job)
        return future


class NvmlSession:
    """The library for callers that keep no handle between two calls; opened by the first of them.

    All callers share it: the library counts its users, and connects to a reloaded driver only after
    the last of them has closed it.
    """

    def __init__(self, thread: NvmlThread) -> None:
        self._thread = thread
        self._open = False
        self._opening = asyncio.Lock()

    async def call(self, work: Callable[[NvmlApi], Result]) -> Result:
        """Run ``work`` on the thread, with the library open.

        Raises:
            NvmlError: the driver does not answer.
            NvmlStuck: as :meth:`NvmlThread.call`.
        """
        async with self._opening:
            if not self._open:
                await self._thread.call(lambda api: api.nvmlInit())
                self._open = True
        return await self._thread.call(work)

    async def close(self) -> None:
        """Close the library, so that the next call reopens it; never raises."""
        async with self._opening:
            if self._open:
                self._open = False
                # a reloaded driver refuses the call; a driver that hangs fails the next one
                with contextlib.suppress(NvmlError, NvmlStuck):
                    await self._thread.call(lambda api: api.nvmlShutdown())


def _yes() -> bool:
    """True: no call was ever made, so none is outstanding."""
    return True


def _serve(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """Body of the thread: jobs in their order until the end marker."""
    while (job := jobs.get()) is not None:
        job()
