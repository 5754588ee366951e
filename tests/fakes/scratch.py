# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Room for files that are written and synced thousands of times; never for programs.

Memory may be mounted so that nothing there can be executed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path


def fast_directory(prefix: str = "un") -> Path:
    """A short path (sockets) on memory where there is some (fsync)."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix=prefix, dir=shared if shared.is_dir() else None))
