# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the CUDA driver does in a client process before and without a server.

The trap that this module keeps alive: in compute mode DEFAULT a client that finds no daemon gets
the whole GPU, without an error and without a word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fake_mps.hardware import Gpu, visible_gpus
from fake_mps.model import Message
from fake_mps.script import Script

BUSY = "all CUDA-capable devices are busy or unavailable"
FAILED_805 = "MPS client failed to connect to the MPS control daemon or the MPS server"
ERROR_CODES: Mapping[str, int] = {
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": 46,
    "CUDA_ERROR_NO_DEVICE": 100,
    "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION": 915,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CUDA_ERROR_MPS_CONNECTION_FAILED": 805,
    "CUDA_ERROR_MPS_RPC_FAILURE": 806,
    "CUDA_ERROR_MPS_SERVER_NOT_READY": 807,
    "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED": 808,
    "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED": 809,
    "CUDA_ERROR_MPS_CLIENT_TERMINATED": 810,
}
_TEXTS = {"CUDA_ERROR_DEVICE_UNAVAILABLE": BUSY, "CUDA_ERROR_MPS_CONNECTION_FAILED": FAILED_805}


def error_message(name: str) -> Message:
    """An error as the client program prints it."""
    message: Message = {"event": "error", "error": name}
    if name in ERROR_CODES:
        message["code"] = ERROR_CODES[name]
    if name in _TEXTS:
        message["text"] = _TEXTS[name]
    return message


def hello_of(
    environ: Mapping[str, str], *, command: str, contexts: int, claimed_uid: int | None
) -> Message:
    """What a process sends when it connects; its environment is read here, once."""
    hello: Message = {
        "command": command,
        "contexts": contexts,
        "percent": _percent(environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")),
        "memory_limit": environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        "priority": _number(environ.get("CUDA_MPS_CLIENT_PRIORITY")),
        "connections": _number(environ.get("CUDA_DEVICE_MAX_CONNECTIONS")) or 2,
        "partition": environ.get("CUDA_MPS_SM_PARTITION"),
        "visible_devices": environ.get("CUDA_VISIBLE_DEVICES"),
        "pid_namespace": pid_namespace(),
    }
    if claimed_uid is not None:
        hello["claimed_uid"] = claimed_uid
    return hello


def without_mps(environ: Mapping[str, str], script: Script, *, stale: bool) -> Message:
    """What a process gets that reached no daemon: everything, or an error in exclusive mode.

    ``stale``: the socket is there and no one listens behind it.
    """
    seen = visible_gpus(script.gpus, environ.get("CUDA_VISIBLE_DEVICES"))
    if not seen:
        return error_message("CUDA_ERROR_NO_DEVICE")
    gpu = seen[0]
    if gpu.exclusive:
        return error_message(
            "CUDA_ERROR_MPS_CONNECTION_FAILED" if stale else "CUDA_ERROR_DEVICE_UNAVAILABLE"
        )
    return unlimited(gpu)


def without_shared_memory(*, exclusive: bool) -> Message:
    """What a process gets that reaches the daemon and not the server's shared memory."""
    return error_message(
        "CUDA_ERROR_DEVICE_UNAVAILABLE" if exclusive else "CUDA_ERROR_MPS_CONNECTION_FAILED"
    )


def unlimited(gpu: Gpu) -> Message:
    """The whole GPU."""
    return {
        "event": "unlimited",
        "gpu": gpu.uuid,
        "sm_count": gpu.sm_count,
        "memory_cap_mib": None,
        "allocatable_mib": gpu.memory_mib,
        "memory_free_mib": gpu.memory_mib,
        "memory_total_mib": gpu.memory_mib,
    }


def pid_namespace() -> int:
    """Number of this process's PID namespace, as ps shows it."""
    return int(os.readlink("/proc/self/ns/pid").removeprefix("pid:[").removesuffix("]"))


def _percent(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value <= 100 else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
