# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""MIG devices, read by a process that may see them, for the agent, which may not.

The container toolkit shows MIG devices only to containers with ``SYS_ADMIN``, and the agent holds a
token of the API server. So the process reader, which has none, answers two requests over a socket
owned by root (:class:`MigReader`): the MIG devices of a GPU, and their states. The agent itself
reads everything else about a GPU in MIG mode, its health and error events included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Protocol, TypeVar

from ullage.api.codec import Wire
from ullage.api.readers import JsonObject, WireError, text
from ullage.api.reasons import Reason
from ullage.api.wire_fields import NEEDED, Flag, Name, Text, Whole, word
from ullage_node.devices.nvidia.host_processes import UUIDS_MAX, devices_asked
from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlError, NvmlSession, NvmlStuck
from ullage_node.devices.nvidia.read import (
    NvidiaDevice,
    NvidiaFault,
    NvidiaState,
    UnreadDevice,
    explain,
    failure_text,
    read_parts,
    read_state,
)
from ullage_node.line_socket import Unanswered, ask
from ullage_node.times import HOST_LOOK_S

SOCKET: Final = "mig.sock"
"""In the directory of the process reader."""

Result = TypeVar("Result")
Record = TypeVar("Record", bound=Wire)


class MigUnseen(Exception):
    """MIG devices cannot be determined now; the text says why."""


class MigVerb(StrEnum):
    """Requests of the agent."""

    PARTS = "parts"
    STATES = "states"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice(Wire):
    """Properties that a MIG device does not share with its GPU."""

    gpu: Name
    uuid: Name
    product_name: Name
    memory_mib: Annotated[Whole, NEEDED]
    sm_count: Whole = 0
    gpu_instance: Annotated[Whole, NEEDED]
    compute_instance: Annotated[Whole, NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigState(Wire):
    """State of a MIG device; no ``reason`` = it has no fault."""

    uuid: Name
    hard: Flag = False
    reason: Annotated[Reason | None, word(Reason, Reason.DEVICE_UNHEALTHY, grows=True)] = None
    message: Text = ""
    slowed: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevices(Wire):
    """An answer about GPUs; ``unread`` are those whose MIG devices are unknown."""

    parts: tuple[MigDevice, ...] = ()
    unread: tuple[UnreadDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigStates(Wire):
    """An answer about MIG devices."""

    states: tuple[MigState, ...] = ()


class MigSource(Protocol):
    """Reports the MIG devices and their states."""

    async def parts(self, gpus: Sequence[NvidiaDevice]) -> Mapping[str, tuple[NvidiaDevice, ...]]:
        """The MIG devices of these GPUs, by the GPU's uuid.

        Raises:
            MigUnseen: those of a GPU are unknown.
        """
        ...

    async def states(self, uuids: Sequence[str]) -> Mapping[str, NvidiaState]:
        """The states of these MIG devices.

        Raises:
            MigUnseen: they are unknown.
        """
        ...


class MigReader:
    """Answers the agent from NVML; nothing is changed on any device."""

    def __init__(self, session: NvmlSession) -> None:
        self._session = session

    async def answer(self, raw: JsonObject) -> Mapping[str, object]:
        """Answer one request, ``{"verb": ..., "uuids": [...]}``.

        Raises:
            Unanswered: the driver does not answer.
            WireError: it is not a request.
        """
        verb, uuids = text(raw, "verb"), devices_asked(raw)
        if verb == MigVerb.PARTS:
            parts = await self._call(lambda api: _parts(api, uuids))
            await self._settle(uuids, {unread.gpu for unread in parts.unread})
            return {"seen": parts.to_wire()}
        if verb == MigVerb.STATES:
            states = await self._call(lambda api: {uuid: read_state(api, uuid) for uuid in uuids})
            await self._settle(uuids, {uuid for uuid, state in states.items() if state.fault})
            answer = MigStates(states=tuple(_state_of(*item) for item in states.items()))
            return {"seen": answer.to_wire()}
        raise WireError(f"verb: {verb!r} is none of {', '.join(MigVerb)}")

    async def _settle(self, uuids: Sequence[str], failed: Collection[str]) -> None:
        """Reopen the library if no device could be read: the driver was probably reloaded."""
        if uuids and len(failed) == len(set(uuids)):
            await self._session.close()

    async def _call(self, work: Callable[[NvmlApi], Result]) -> Result:
        try:
            return await self._session.call(work)
        except (NvmlError, NvmlStuck) as error:
            raise Unanswered(failure_text(error)) from error


def _parts(api: NvmlApi, uuids: Sequence[str]) -> MigDevices:
    parts: list[MigDevice] = []
    unread: list[UnreadDevice] = []
    for gpu in uuids:
        try:
            parts += (_part_of(device) for device in read_parts(api, gpu))
        except NvmlError as error:
            unread.append(UnreadDevice(gpu=gpu, why=explain(error)))
    return MigDevices(parts=tuple(parts), unread=tuple(unread))


def _part_of(device: NvidiaDevice) -> MigDevice:
    assert device.instance is not None
    return MigDevice(
        gpu=device.parent,
        uuid=device.uuid,
        product_name=device.product_name,
        memory_mib=device.memory_mib,
        sm_count=device.sm_count,
        gpu_instance=device.instance[0],
        compute_instance=device.instance[1],
    )


def _state_of(uuid: str, state: NvidiaState) -> MigState:
    if state.fault is None:
        return MigState(uuid=uuid, slowed=state.slowed)
    fault = state.fault
    return MigState(
        uuid=uuid,
        hard=fault.hard,
        reason=fault.reason,
        message=fault.message,
        slowed=state.slowed,
    )


class HostMig:
    """The agent's client of the reader."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def parts(self, gpus: Sequence[NvidiaDevice]) -> Mapping[str, tuple[NvidiaDevice, ...]]:
        """See :class:`MigSource`."""
        asked = {gpu.uuid: gpu for gpu in gpus}
        answer = await self._ask(MigDevices, MigVerb.PARTS, sorted(asked))
        for unread in answer.unread:
            raise MigUnseen(f"MIG devices of {unread.gpu} are not read: {unread.why}")
        if len(answer.parts) > UUIDS_MAX or not {part.gpu for part in answer.parts} <= set(asked):
            raise MigUnseen("the reader of MIG devices names too many, or of GPUs not asked for")
        return {
            uuid: tuple(_device(gpu, part) for part in answer.parts if part.gpu == uuid)
            for uuid, gpu in asked.items()
        }

    async def states(self, uuids: Sequence[str]) -> Mapping[str, NvidiaState]:
        """See :class:`MigSource`."""
        answer = await self._ask(MigStates, MigVerb.STATES, uuids)
        states = {state.uuid: _state(state) for state in answer.states}
        if states.keys() != set(uuids):
            raise MigUnseen("the reader of MIG devices answers for others than were asked for")
        return states

    async def _ask(self, record: type[Record], verb: MigVerb, uuids: Sequence[str]) -> Record:
        request = {"verb": verb.value, "uuids": list(uuids)}
        try:
            answer = await ask(self._socket, request, HOST_LOOK_S, "the reader of MIG devices")
            raw = answer.get("seen")
            if not isinstance(raw, dict):  # a failed read must not look like an empty list
                raise WireError("seen: expected an object")
            return record.from_wire(raw)
        except Unanswered as error:
            raise MigUnseen(f"{error}; see the pod ullage-processes on this node") from error
        except WireError as error:
            raise MigUnseen(f"the reader of MIG devices is not understood: {error}") from error


def _device(gpu: NvidiaDevice, part: MigDevice) -> NvidiaDevice:
    return replace(
        gpu,
        uuid=part.uuid,
        product_name=part.product_name,
        memory_mib=part.memory_mib,
        mig=False,
        sm_count=part.sm_count,
        parent=gpu.uuid,
        instance=(part.gpu_instance, part.compute_instance),
    )


def _state(state: MigState) -> NvidiaState:
    if state.reason is None:
        return NvidiaState(slowed=state.slowed)
    fault = NvidiaFault(hard=state.hard, reason=state.reason, message=state.message)
    return NvidiaState(fault=fault, slowed=state.slowed)
