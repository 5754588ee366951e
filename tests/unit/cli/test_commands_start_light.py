# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A command imports what it needs to answer, and nothing of other commands.

What is imported is what a start costs, and it is the same on every machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

NUMERICS: Final = {"numpy", "scipy", "matplotlib", "optuna", "pandas"}
HEAVY: Final = {"scipy.optimize", "scipy.sparse", "scipy.stats", "matplotlib", "optuna"}
"""Parts of libraries that only decisions and pictures need."""
CLUSTER: Final = {"kubernetes", "aiohttp", "asyncio", "orjson", "yaml"}
LIGHT: Final = ("main", "forms", "simulate_options", "target")
PROGRAM: Final = """
import contextlib, io, json, sys
from ullage.cli.main import run
sys.argv = ["kubectl-ullage", *sys.argv[1:]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    run()
print(json.dumps(sorted(sys.modules)))
"""


def imported(*words: str) -> set[str]:
    """Modules of a process that ran a command, whatever it answered."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    modules = set(json.loads(done.stdout))
    assert "ullage.cli.main" in modules
    return modules


def test_the_version_needs_no_library_but_that_for_options() -> None:
    modules = imported("--version")
    assert not modules & (NUMERICS | CLUSTER | {"rich"})
    ours = {name for name in modules if name.startswith("ullage.")}
    assert ours == {"ullage.cli", *(f"ullage.cli.{name}" for name in LIGHT)}


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("status", "--help"),
        ("simulate", "--help"),
        ("tuning", "--help"),
        ("profile", "import", "--help"),
        ("no-such-command",),
    ],
)
def test_help_needs_neither_numerics_nor_a_client(words: tuple[str, ...]) -> None:
    assert not imported(*words) & (NUMERICS | CLUSTER)


def test_an_explanation_needs_no_cluster() -> None:
    assert not imported("explain", "Placed") & (NUMERICS | CLUSTER)


@pytest.mark.parametrize(
    "words",
    [("status",), ("why", "a"), ("why", "tj/a"), ("top",), ("drain", "a"), ("doctor",)],
    ids=" ".join,
)
def test_a_look_at_the_cluster_solves_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(UNREACHABLE))
    modules = imported("--kubeconfig", str(kubeconfig), *words)
    assert "aiohttp" in modules
    assert not modules & HEAVY


UNREACHABLE: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "me", "user": {"token": "none"}}],
}
