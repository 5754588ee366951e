# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from digits import data
from digits.data import DataMissing, Digits


def test_every_image_of_the_library_is_there_once(digits: Digits) -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    images = np.vstack((digits.train_images, digits.test_images)) * data.BRIGHTEST
    labels = np.concatenate((digits.train_labels, digits.test_labels))
    ours = sorted(map(tuple, np.column_stack((images, labels)).tolist()))
    assert ours == sorted(map(tuple, np.column_stack((theirs.data, theirs.target)).tolist()))
    assert len(digits.test_labels) == data.HELD_OUT


def test_the_library_itself_is_not_imported() -> None:
    program = "from digits import data; import sys; data.load(); print('sklearn' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(DataMissing, match="pip install scikit-learn"):
        data.load()


def test_an_image_may_hold_a_copy_instead_of_the_library(
    digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "digits.csv.gz"
    shutil.copy(data._file(), copy)
    monkeypatch.setattr(data, "COPY", copy)
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    assert np.array_equal(data.load().train_images, digits.train_images)
