# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The node agent and the in-pod runtime must never load more than the standard library here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


@pytest.mark.parametrize("module", ["environment", "labels", "reasons", "slices"])
def test_only_the_standard_library_is_loaded(module: str) -> None:
    program = PROGRAM.format(module=f"ullage.api.{module}")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert loaded - sys.stdlib_module_names == {"ullage"}
