# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stock loops with torch's own DataLoader, whose workers are tuned from epoch to epoch.

``TORCH_PYTHON`` names an interpreter with torch where this one has none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import ullage
import ullage_run

PYTHON: Final = os.environ.get("TORCH_PYTHON", sys.executable)
HAS_TORCH: Final = (
    subprocess.run(
        [PYTHON, "-c", "import importlib.util as u; exit(not u.find_spec('torch'))"], check=False
    ).returncode
    == 0
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: the hook is not tried"),
]
PATIENCE_S: Final = 300.0
PROGRAM: Final = """
import json, os, sys, time, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

torch.set_num_threads(1)

class Rows(Dataset):
    def __init__(self): {init}
    def __len__(self): return 16 * 12
    def __getitem__(self, index):
        {item}
        return torch.full((4,), float(index))

class Stream(IterableDataset):
    def __iter__(self):
        for index in range(16 * 12):
            time.sleep(.006)
            yield torch.full((4,), float(index))

if __name__ == "__main__":
    loader = DataLoader({loader})
    epochs = []
    for epoch in range(4):
        seen = []
        for batch in loader:
            seen += [int(row[0]) for row in batch]
            time.sleep(.02)
        whole = sorted(seen) == list(range(192))
        epochs.append([loader.num_workers, loader.prefetch_factor, whole])
    print(json.dumps(epochs))
"""


def run(
    tmp_path: Path,
    loader: str = "Rows(), batch_size=16, shuffle=True",
    item: str = "time.sleep(.006)",
    init: str = "pass",
    terms: str = "8",
) -> tuple[list[list[Any]], dict[str, Any] | None]:
    """The settings of each epoch, whether all samples came once, and the report."""
    folder = tmp_path / "steps"
    (folder / "trace").mkdir(parents=True)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(loader=loader, item=item, init=init))
    sources = [str(Path(package.__file__).parents[1]) for package in (ullage, ullage_run)]
    hook = str(Path(ullage_run.__file__).parent / "autostep")
    done = subprocess.run(
        [PYTHON, str(program)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([hook, *sources]),
            "ULLAGE_STEPS": str(folder / "record"),
            "ULLAGE_LOADER": terms,
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ullage:" not in done.stderr
    report = folder / "trace" / "loader-0"
    return json.loads(done.stdout), json.loads(report.read_text()) if report.exists() else None


def test_the_next_epoch_has_workers_and_every_sample_comes_once(tmp_path: Path) -> None:
    epochs, report = run(tmp_path, loader="Rows(), batch_size=16, shuffle=True")
    assert epochs[0][:2] == [0, None]
    assert epochs[1][0] >= 2
    assert all(whole for _, _, whole in epochs)
    assert report is not None
    assert report["from"] == [0, 2]
    assert report["wait"][0] > 50
    assert report["wait"][1] < report["wait"][0]


def test_persistent_workers_are_replaced(tmp_path: Path) -> None:
    epochs, _ = run(
        tmp_path,
        loader="Rows(), batch_size=16, num_workers=1, persistent_workers=True",
        item="time.sleep(.01)",
    )
    assert epochs[0][0] == 1
    assert epochs[1][0] > 1
    assert all(whole for _, _, whole in epochs)


def test_a_run_starts_with_what_the_last_one_found(tmp_path: Path) -> None:
    epochs, _ = run(tmp_path, terms="8,5,2")
    assert epochs[0][:2] == [5, 2]


def test_without_the_jobs_word_nothing_changes(tmp_path: Path) -> None:
    epochs, report = run(tmp_path, terms="")
    assert {tuple(epoch) for epoch in epochs} == {(0, None, True)}
    assert report is None


@pytest.mark.parametrize(
    ("item", "init", "why"),
    [
        (
            "torch.utils.data.get_worker_info() and 1 / 0; time.sleep(.006)",
            "pass",
            "does not work in a worker",
        ),
        ("time.sleep(.006)", "self.file = open(__file__)", "open files"),
    ],
)
def test_what_does_not_work_in_a_worker_stays_as_it_is(
    tmp_path: Path, item: str, init: str, why: str
) -> None:
    epochs, report = run(tmp_path, item=item, init=init)
    assert [whole for _, _, whole in epochs] == [True] * 4
    assert epochs[-1][0] == 0
    assert report is not None
    assert report["state"] == "Fixed"
    assert why in report["text"]


def test_a_data_set_that_cannot_be_sent_to_workers_stays_as_it_is(tmp_path: Path) -> None:
    epochs, report = run(
        tmp_path,
        loader="Rows(), batch_size=16, multiprocessing_context=None",
        init="self.call = lambda: 1; torch.multiprocessing.set_start_method('spawn', force=True)",
    )
    assert [whole for _, _, whole in epochs] == [True] * 4
    assert epochs[-1][0] == 0
    assert report is not None
    assert "workers do not start" in report["text"]


def test_a_stream_that_shards_itself_gets_advice_only(tmp_path: Path) -> None:
    epochs, report = run(tmp_path, loader="Stream(), batch_size=16")
    assert {tuple(epoch) for epoch in epochs} == {(0, None, True)}
    assert report is not None
    assert (report["state"], report["text"]) == ("Fixed", "its IterableDataset shards itself")


def test_errors_of_the_program_itself_reach_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(tmp_path, item="1 / 0")
