# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a simulation."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[int], None]
"""Callback with the finished amount of a task."""
Follow = Callable[[str, int], Tell]
"""Takes name and length of a task; returns its progress callback."""
