# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Work in a thread, where the kernel may refuse one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ThreadRefused(OSError):
    """No thread could be started: the process or its container has reached its limit."""


async def in_thread(
    work: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """Run a function in a thread; its exceptions are raised here.

    Raises:
        ThreadRefused: there is none, and the function was not called, or its result is lost.
    """
    loop = asyncio.get_running_loop()
    try:
        answer = loop.run_in_executor(None, partial(work, *args, **kwargs))
    except RuntimeError as error:
        raise ThreadRefused(errno.EAGAIN, f"no thread could be started: {error}") from error
    return await answer
