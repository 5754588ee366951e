# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The copy of ``ullage_run`` on a node works by itself, in an image that has nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ullage.api.environment import ENV_STEPS, LIBRARY_MOUNT
from ullage.api.steps import STEP_RECORD_BYTES, StepRecord
from ullage_node.model.devices import READ_ONLY
from ullage_node.slices.library import FOLDER, Library

TORCH = """
_hooks = []

def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)

class SGD:
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""
TRAIN = """
import sys
from torch.optim.optimizer import SGD
optimizer = SGD()
for _ in range(7):
    optimizer.step()
foreign = {name.partition(".")[0] for name in sys.modules} & {"pydantic", "structlog", "numpy"}
assert not foreign, foreign
"""


def installed(state: Path) -> Path:
    library = Library(state)
    library.install()
    (mount,) = library.mount()
    assert (mount.container_path, mount.options) == (LIBRARY_MOUNT, READ_ONLY)
    return Path(mount.host_path)


def test_steps_are_counted_with_nothing_but_the_copy(tmp_path: Path) -> None:
    copy = installed(tmp_path / "state")
    site = tmp_path / "site"
    (site / "torch" / "optim").mkdir(parents=True)
    (site / "torch" / "__init__.py").touch()
    (site / "torch" / "optim" / "__init__.py").touch()
    (site / "torch" / "optim" / "optimizer.py").write_text(TORCH)
    record = tmp_path / "record"
    record.write_bytes(bytes(STEP_RECORD_BYTES))
    path = f"{copy}/ullage_run/autostep:{site}"
    # -s and a bare environment: no package of this machine but the standard library's and the copy
    done = subprocess.run(
        [sys.base_prefix + "/bin/python3", "-s", "-c", TRAIN],
        env={"PYTHONPATH": path, ENV_STEPS: str(record)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    read = StepRecord.unpack(record.read_bytes())
    assert read is not None
    assert read.steps == 7


def test_a_library_that_the_image_brings_comes_before_the_copy(tmp_path: Path) -> None:
    copy = installed(tmp_path / "state")
    own = tmp_path / "site" / "ullage_run"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("theirs = True\n")
    (own / "torch_hook.py").write_text("def install(): pass\n")
    done = subprocess.run(
        [
            sys.base_prefix + "/bin/python3",
            "-s",
            "-c",
            "import ullage_run; print(ullage_run.theirs)",
        ],
        env={"PYTHONPATH": f"{copy}/ullage_run/autostep:{tmp_path / 'site'}", ENV_STEPS: "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_copy_is_written_once_and_readable_for_every_user(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        copy = installed(tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (copy, *copy.rglob("*/"))} == {0o755}
    written = {path: path.stat().st_mtime_ns for path in copy.rglob("*.py")}
    assert written
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in written)
    assert installed(tmp_path) == copy
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*.py")} == written
    assert [entry.name for entry in (tmp_path / FOLDER).iterdir()] == [copy.name]


def test_what_a_killed_agent_left_half_written_is_replaced(tmp_path: Path) -> None:
    copy = installed(tmp_path)
    half = copy.with_suffix(".new")
    copy.rename(half)
    (half / "ullage" / "__init__.py").write_text("broken")
    assert installed(tmp_path) == copy
    assert "broken" not in (copy / "ullage" / "__init__.py").read_text()
    assert not half.exists()


def test_without_a_copy_containers_start_without_the_mount(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file stands where the folder should be")
    library = Library(tmp_path)
    library.install()
    assert library.mount() == ()
