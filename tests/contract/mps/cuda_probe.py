# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The client of the contract tests on a real GPU: one CUDA context, reported as the fake does.

Only the driver library is needed. It holds its context until SIGTERM; a sticky error is reported
when it shows at the next call.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

_SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_MIB = 1024 * 1024


def main() -> int:
    """Attach, report, hold."""
    cuda = ctypes.CDLL("libcuda.so.1")
    leave = False

    def asked(*_: object) -> None:
        nonlocal leave
        leave = True

    signal.signal(signal.SIGTERM, asked)
    context, device, sms = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for code in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        cuda.cuDeviceGetAttribute(ctypes.byref(sms), _SM_COUNT, device),
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
    ):
        if code:
            return _failed(cuda, code)
    _say(
        event="attached",
        sm_count=sms.value,
        memory_free_mib=free.value // _MIB,
        memory_total_mib=total.value // _MIB,
    )
    told = False
    while not leave:
        code = cuda.cuCtxSynchronize()
        if code and not told:
            told = True
            _failed(cuda, code)
        time.sleep(0.05)
    return int(told)


def _failed(cuda: ctypes.CDLL, code: int) -> int:
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(name))
    _say(event="error", error=(name.value or b"").decode(), code=code)
    return 1


def _say(**message: object) -> None:
    print(json.dumps({"pid": os.getpid(), **message}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
