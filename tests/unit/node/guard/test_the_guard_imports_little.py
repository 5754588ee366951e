# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Guard and watchdog stand on every node beside the agent: each heavy module would count twice."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import ullage_node.main
import ullage_node.guard.main
print(*sorted(sys.modules))
"""
ONLY_THE_AGENT = {
    "aiohttp",
    "asyncio",
    "attr",
    "concurrent",
    "ctypes",
    "email",
    "google",
    "grpc",
    "hashlib",
    "http",
    "logging",
    "numpy",
    "orjson",
    "prometheus_client",
    "pynvml",
    "rich",
    "ssl",
    "structlog",
    "subprocess",
    "threading",
    "yaml",
    "yarl",
    "zipfile",
}


def _loaded(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_guard_loads_nothing_that_only_the_agent_needs() -> None:
    loaded = _loaded(PROGRAM)
    assert {name.partition(".")[0] for name in loaded} & ONLY_THE_AGENT == set()
    assert "importlib.metadata" not in loaded


def test_the_guard_loads_its_own_half_of_the_package() -> None:
    ours = {name for name in _loaded(PROGRAM) if name.startswith("ullage_node.")}
    assert "ullage_node.guard.server" in ours
    others = {"agent", "api_client", "assemble", "kubelet", "logs", "mps", "serve", "slices"}
    assert {name.split(".")[1] for name in ours} & others == set()
    assert "ullage_node.guard.guard" not in ours
    assert not any(name.startswith("ullage_node.telemetry") for name in ours)
