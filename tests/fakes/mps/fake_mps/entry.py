# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry points of the installed package; a checkout uses the scripts in ``bin`` instead."""

from __future__ import annotations

import os
import sys


def control() -> None:
    """``nvidia-cuda-mps-control``."""
    from fake_mps.typed import main

    sys.exit(main(sys.argv[1:], os.environ))


def client() -> None:
    """``fake_cuda_client``."""
    from fake_mps.client import main

    sys.exit(main(sys.argv[1:], os.environ))
