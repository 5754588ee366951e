# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Readings by lanes of the containers that take turns in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReading:
    """One container: how much it waits, and what it said that it took at most, MiB."""

    wait_percent: int = 0
    persistent_peak_mib: int = 0
    ephemeral_peak_mib: int = 0
    suspended: bool = False
    """Its memory is not on the device."""
