# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a part of a measurement in a process of its own, so that nothing else delays it."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


async def run_apart(
    body: Callable[..., None], arguments: tuple[object, ...], into: list[T]
) -> None:
    """Run a function in a new process until it returns, or until this is cancelled.

    Args:
        body: Of a module, so that the process finds it; after the arguments it gets a connection.
        arguments: What can be pickled.
        into: Where is put what the function sends.
    """
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    child = spawning.Process(target=body, args=(*arguments, sender), daemon=True)
    child.start()
    sender.close()
    try:
        await asyncio.to_thread(_drain, receiver, into)
    finally:
        child.terminate()  # a cancelled reader ends at the end of the pipe


def _drain(receiver: Connection, into: list[T]) -> None:
    with suppress(EOFError):
        while True:
            into.append(receiver.recv())
