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

NUMERICS: Final = {"numpy", "scipy", "matplotlib", "optuna", "pandas"}
HEAVY: Final = {"scipy.optimize", "scipy.sparse", "scipy.stats", "matplotlib", "optuna"}
"""Parts of libraries that only decisions and pictures need."""
CLUSTER: Final = {"kubernetes", "aiohttp", "asyncio", "orjson", "yaml"}
LIGHT: Final = ("main", "forms", "job_or_command", "plan_options", "simulate_options", "target")
PROGRAM: Final = """
import contextlib, io, json, sys
from ullage.cli.main import run
after = []
for words in json.load(sys.stdin):
    sys.argv = ["kubectl-ullage", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        with contextlib.suppress(SystemExit):
            run()
    after.append([said.getvalue(), sorted(sys.modules)])
print(json.dumps(after))
"""


def answers(*commands: tuple[str, ...]) -> list[tuple[str, set[str]]]:
    """Answers of commands that one process ran, each with the modules that were imported by then.

    A start costs what a process costs: modules that no command may import are looked for in all.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [(said, set(modules)) for said, modules in json.loads(done.stdout)]
    assert len(found) == len(commands)
    assert all("ullage.cli.main" in modules for _, modules in found)
    return found


def test_the_version_needs_no_library_but_that_for_options() -> None:
    ((_, modules),) = answers(("--version",))
    assert not modules & (NUMERICS | CLUSTER | {"rich"})
    ours = {name for name in modules if name.startswith("ullage.")}
    assert ours == {"ullage.cli", *(f"ullage.cli.{name}" for name in LIGHT)}


def test_help_and_explanations_need_neither_numerics_nor_a_client() -> None:
    commands = (
        ("--help",),
        ("status", "--help"),
        ("simulate", "--help"),
        ("plan", "--help"),
        ("tuning", "--help"),
        ("profile", "import", "--help"),
        ("no-such-command",),
        ("explain", "Placed"),
    )
    for command, (said, modules) in zip(commands, answers(*commands), strict=True):
        assert said, command
        assert not modules & (NUMERICS | CLUSTER), command


def test_a_look_at_the_cluster_solves_nothing(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(UNREACHABLE))
    looks = (("status",), ("why", "a"), ("why", "tj/a"), ("top",), ("drain", "a"), ("doctor",))
    commands = [("--kubeconfig", str(kubeconfig), *look) for look in looks]
    for look, (said, modules) in zip(looks, answers(*commands), strict=True):
        assert "127.0.0.1:1" in said, look
        assert "aiohttp" in modules, look
        assert not modules & HEAVY, look


UNREACHABLE: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "me", "user": {"token": "none"}}],
}
