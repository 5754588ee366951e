# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the variables that a client began with to those of its share. Pure.

CUDA reads them when a process starts, and the kernel keeps a copy of that moment, so an image needs
no library of ours to prove its share. A program that removes a variable before it starts CUDA is
not caught: protocol 2 itself trusts its clients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ullage_node.mps.control import ORDINAL
from ullage_node.mps.records import MEMORY, PIPE, SHARE, ClientEnvironment

_PERCENT: Final = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
_MIB: Final = re.compile(r"(\d{1,9})([MG])", re.ASCII)
_MIB_OF: Final = {"M": 1, "G": 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedShare:
    """The share that a client's variables have to hold.

    ``pipe`` is the directory of the slice's namespace, which holds the limits under protocol 3; ""
    under protocol 2, where the variables do.
    """

    uuid: str
    percent: int
    cap_mib: int
    pipe: str = ""


def departure(decided: DecidedShare, seen: ClientEnvironment) -> str:
    """Says where a client's variables are wider than its share; "" = nowhere.

    Variables only tighten, so a program may give itself less.
    """
    if decided.pipe:
        return "" if seen.pipe == decided.pipe else _differs(seen.pid, PIPE, seen.pipe)
    if not 0 < _percent(seen.share) <= decided.percent:
        return _differs(seen.pid, SHARE, seen.share)
    if not 0 < _cap_mib(seen.memory, decided.uuid) <= decided.cap_mib:
        return _differs(seen.pid, MEMORY, seen.memory)
    return ""


def _percent(value: str) -> float:
    return float(value) if _PERCENT.fullmatch(value) else 0.0


def _cap_mib(value: str, uuid: str) -> int:
    """The memory limit of a variable with this one device, by ordinal or uuid, else 0.

    An entry for a device that the client cannot see makes it drop every limit.
    """
    name, _, size = value.partition("=")
    match = _MIB.fullmatch(size)
    return int(match[1]) * _MIB_OF[match[2]] if match and name in (ORDINAL, uuid) else 0


def _differs(pid: int, name: str, value: str) -> str:
    setting = f"with {name}={value!r}" if value else f"without {name}"
    return (
        f"process {pid} began {setting}, which is wider than its share; does the image or its "
        "command change the variable or drop its environment?"
    )
