# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The fake of NVIDIA's Multi-Process Service, as other tests reach it.

``fake_mps`` is a package of its own, so its folder goes on the path before its names are lent.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from fake_mps.library import *  # noqa: E402, F403
