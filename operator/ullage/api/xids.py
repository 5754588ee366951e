# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Xids, the numbers of NVIDIA's driver for faults: what each means, whose it is, what is done.

One table for the agent's view of a device's health and the operator's view of a class. Standard
library only. Sources: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors), dynamic page
retirement (63, 64), memory error management (94, 95). What no source says is marked unconfirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

MAX_XID: Final = 2**31 - 1


class Cause(StrEnum):
    """Whose fault a fault is."""

    APPLICATION = "Application"
    """A program's: its class is charged, the device goes on."""
    UNCLEAR = "Unclear"
    """An after-effect, or the number does not tell: no one is charged, the device goes on."""
    CONTAINED = "Contained"
    """The memory's, contained: the driver ends the program that met it, the device goes on."""
    UNCONTAINED = "Uncontained"
    """The memory's, not contained: every program may be affected, the device needs a reset."""
    DEVICE = "Device"
    """The device's."""
    LINK = "Link"
    """A link's between devices."""

    @property
    def unhealthy(self) -> bool:
        """True when the device takes nothing new until it was well for a while."""
        return self in (Cause.UNCONTAINED, Cause.DEVICE, Cause.LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One number.

    ``unconfirmed`` says what of the row is our choice and stands in no source; "" = nothing.
    """

    number: int
    meaning: str
    cause: Cause
    action: str
    unconfirmed: str = ""

    @property
    def text(self) -> str:
        """The fault in a few words: ``Xid 31 (memory page fault)``."""
        return f"Xid {self.number} ({self.meaning})"


_CHARGED: Final = "the class of the pod that was alone on the device is charged and isolated"
_OUT: Final = "the device takes nothing new"

_ROWS: Final = (
    Xid(
        number=13,
        meaning="graphics engine exception",
        cause=Cause.APPLICATION,
        action=_CHARGED,
        unconfirmed="rarely a hardware fault, which the number does not tell apart",
    ),
    Xid(
        number=31,
        meaning="memory page fault",
        cause=Cause.APPLICATION,
        action=_CHARGED,
        unconfirmed="rarely a driver or hardware fault, which the number does not tell apart",
    ),
    Xid(number=43, meaning="GPU stopped processing", cause=Cause.APPLICATION, action=_CHARGED),
    Xid(
        number=45,
        meaning="clean-up after an end or another fault",
        cause=Cause.UNCLEAR,
        action="told, no more: a kill alone brings it",
    ),
    Xid(
        number=48,
        meaning="double-bit ECC error",
        cause=Cause.DEVICE,
        action=_OUT,
        unconfirmed="that a device which contained the error (94) is better left out, too",
    ),
    Xid(
        number=63,
        meaning="memory page retired or row remapped",
        cause=Cause.DEVICE,
        action=_OUT,
        unconfirmed="the catalog asks for nothing; the device is left out for a while only",
    ),
    Xid(
        number=64,
        meaning="memory page not retired or row not remapped",
        cause=Cause.DEVICE,
        action=f"{_OUT}: reset it, replace it if the fault comes back",
    ),
    Xid(
        number=68,
        meaning="video decoder exception",
        cause=Cause.APPLICATION,
        action=_CHARGED,
        unconfirmed="the catalog asks for a restart of the program and does not say whose it is",
    ),
    Xid(
        number=74,
        meaning="NVLink error",
        cause=Cause.LINK,
        action=f"{_OUT}: check the link and the device at its other end",
    ),
    Xid(
        number=79,
        meaning="GPU fallen off the bus",
        cause=Cause.DEVICE,
        action=f"{_OUT}: restart the node",
    ),
    Xid(
        number=94,
        meaning="contained memory error",
        cause=Cause.CONTAINED,
        action="told, no more: the driver ends the program that met it, which starts again",
    ),
    Xid(
        number=95,
        meaning="uncontained memory error",
        cause=Cause.UNCONTAINED,
        action=f"{_OUT}: drain and reset it",
    ),
    Xid(
        number=109,
        meaning="context switch timeout",
        cause=Cause.UNCLEAR,
        action="told, no more",
        unconfirmed="NVIDIA's device plugin counts it to the program, the catalog asks for a reset",
    ),
)

XIDS: Final[Mapping[int, Xid]] = MappingProxyType({row.number: row for row in _ROWS})
"""The numbers that are known, by number."""


def xid_of(number: int) -> Xid:
    """The row of a number; an unknown one is the device's fault, in doubt against the device."""
    return XIDS.get(number) or Xid(
        number=number,
        meaning="see NVIDIA's Xid catalog",
        cause=Cause.DEVICE,
        action=_OUT,
        unconfirmed="that a number which is not listed is the device's fault",
    )
