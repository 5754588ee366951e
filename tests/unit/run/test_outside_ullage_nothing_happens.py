# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ullage.api.environment import ENV_STEPS
from ullage.api.steps import STEP_RECORD_BYTES
from ullage_run.record import StepWriter


def use(writer: StepWriter) -> None:
    for _ in range(3):
        writer.step(8)
        writer.checkpointed()
        writer.sm_count(1)
        assert writer.resumed(7)


@pytest.mark.parametrize("path", [None, "", "/nonexistent/record", "nul\0byte", "x" * 5000])
def test_no_record_no_effect(path: str | None) -> None:
    use(StepWriter(path))


def test_a_shorter_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(bytes(STEP_RECORD_BYTES - 1))
    use(StepWriter(str(path)))
    assert path.read_bytes() == bytes(STEP_RECORD_BYTES - 1)


def test_a_longer_file_is_written_only_in_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(bytes(STEP_RECORD_BYTES) + b"tail")
    use(StepWriter(str(path)))
    assert path.read_bytes()[STEP_RECORD_BYTES:] == b"tail"
    assert path.read_bytes()[:4] == b"ULST"


def test_a_folder_or_a_pipe_in_its_place_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    use(StepWriter(str(tmp_path)))
    use(StepWriter(str(pipe)))


def test_a_record_that_is_not_ours_to_write(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    use(StepWriter(str(record)))
    monkeypatch.undo()
    assert record.read_bytes() == bytes(STEP_RECORD_BYTES)


def test_a_record_that_appears_later_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    now = [10**12]
    monkeypatch.setattr("ullage_run.record.monotonic_ns", lambda: now[0])
    writer = StepWriter(str(path))
    writer.step()
    path.write_bytes(bytes(STEP_RECORD_BYTES))
    writer.step()
    assert path.read_bytes() == bytes(STEP_RECORD_BYTES), "not tried again within the second"
    now[0] += 1_000_000_000
    writer.step()
    assert path.read_bytes()[:4] == b"ULST"


def test_the_module_needs_no_environment_and_only_the_standard_library() -> None:
    program = (
        "import sys, ullage_run as u; u.step(); u.checkpointed(); u.sm_count(3);"
        "assert not u.stopping() and not u.should_checkpoint();"
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    environment = {name: value for name, value in os.environ.items() if name != ENV_STEPS}
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['__main__', 'ullage', 'ullage_run']"
