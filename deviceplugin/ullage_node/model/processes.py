# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A process that is noted now and acted on later."""

from __future__ import annotations

from typing import NamedTuple


class ProcessId(NamedTuple):
    """Number and start of a process of this boot, ``start`` in ticks since then.

    The kernel gives a number again once its process has ended, so both are compared.
    """

    pid: int
    start: int
