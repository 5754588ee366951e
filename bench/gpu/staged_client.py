# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A CUDA client in two stages: it connects, waits for a line, then makes its context.

Tells whether MPS reads a percentage at the connection or at the first context. Needs the driver
library only; prints JSON lines and holds its context until SIGTERM.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from typing import Final

SM_COUNT: Final = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"""


def main(library: str = "libcuda.so.1") -> int:
    """Connect, wait, attach, report, hold."""
    cuda = ctypes.CDLL(library)
    context, device, seen = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    if code := cuda.cuInit(0):
        return _say(1, error=code, where="cuInit")
    _say(0, event="connected")
    sys.stdin.readline()
    for where, code in (
        ("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)),
        ("attribute", cuda.cuDeviceGetAttribute(ctypes.byref(seen), SM_COUNT, device)),
    ):
        if code:
            return _say(1, error=code, where=where)
    _say(0, event="attached", sm_count=seen.value)
    signal.sigwait({signal.SIGTERM})
    return 0


def _say(status: int, **message: object) -> int:
    print(json.dumps(message), flush=True)
    return status


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(main())
