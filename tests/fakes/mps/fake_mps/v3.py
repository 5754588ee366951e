# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The modules of protocol v3 (r615): servers, namespaces, clients, devices, partitions."""

from __future__ import annotations

from collections.abc import Sequence

from fake_mps.machine import Machine
from fake_mps.model import Answer


def carry_out(machine: Machine, words: Sequence[str], uid: int) -> Answer:
    """Run one module call."""
    answer = Answer()
    answer.finish(f"unknown module {words[0]}", 1)
    return answer


def apply_config(machine: Machine, path: str) -> None:
    """Apply a start configuration."""
