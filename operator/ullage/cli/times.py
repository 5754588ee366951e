# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the commands, each with its reason."""

from __future__ import annotations

from typing import Final

TRACE_LOOK_S: Final = 1.0
"""Interval at which the command reads a request that has not ended. Chosen."""
