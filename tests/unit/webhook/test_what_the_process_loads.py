# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

HEAVY = {"pydantic", "kubernetes", "scipy", "numpy", "prometheus_client", "yaml"}
PROGRAM = "import sys, ullage.webhook.main; print(' '.join(sorted(sys.modules)))"


def test_the_webhook_loads_no_client_and_nothing_that_decides() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in loaded)
    ours = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("ullage.")}
    assert ours == {"ullage.api", "ullage.process", "ullage.webhook"}
