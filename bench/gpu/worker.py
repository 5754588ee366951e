# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One tenant as a process: attaches once, then stands parked on a socket until it is released.

``python -m bench.gpu.worker SOCKET KEY [--dry SCALE]``. The share, the memory cap and the priority
come with the environment, as for any client of MPS. torch is imported only where there is a GPU.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from dataclasses import asdict
from typing import Protocol

from bench.gpu.orders import Hello, Line, Order, Report, WorkerGone


class Loop(Protocol):
    """A workload that can be run for a while."""

    def hello(self, key: str) -> Hello:
        """Attach and say what was got."""
        ...

    def run(self, order: Order) -> Report:
        """One window: warm, then measured."""
        ...

    def close(self) -> None:
        """Drain the device and leave."""
        ...


def serve(line: Line, loop: Loop, key: str) -> int:
    """Say hello, then do windows until told to quit; gives the exit status."""
    line.send({"hello": asdict(loop.hello(key))})
    while True:
        message = line.receive(None)
        if "quit" in message:
            loop.close()
            return 0
        found = message["order"]
        assert isinstance(found, dict)
        order = Order(**found)
        if order.cores:
            os.sched_setaffinity(0, order.cores)
        line.send({"report": asdict(loop.run(order))})


def main() -> int:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="bench.gpu.worker")
    parser.add_argument("socket")
    parser.add_argument("key")
    parser.add_argument("--dry", type=float, default=0.0, help="real seconds per second of sleep")
    options = parser.parse_args()
    loop: Loop
    if options.dry:
        from bench.gpu.sleeper import Sleeper

        loop = Sleeper(options.dry)
    else:
        from bench.gpu.torch_loop import TorchLoop

        loop = TorchLoop(options.key.partition("@")[0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(options.socket)
        try:
            return serve(Line(connection), loop, options.key)
        except WorkerGone:
            loop.close()  # the coordinator is gone: leave in order, never with work in flight
            return 1


if __name__ == "__main__":
    sys.exit(main())
