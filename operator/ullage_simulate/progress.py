# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a simulation."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[int], None]
"""Takes how much of a piece of work is done."""
Follow = Callable[[str, int], Tell]
"""Takes name and length of a piece of work; gives the function that reports its progress."""
