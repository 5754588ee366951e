# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits that come with scikit-learn: 1,797 images of 8 x 8 pixels.

The file is read where the package keeps it, or beside this module where an image holds a copy. The
package is not imported: that would cost two seconds of processor time in every pod, for one table.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

PIXELS: Final = 64
CLASSES: Final = 10
BRIGHTEST: Final = 16.0
HELD_OUT: Final = 360
SPLIT_SEED: Final = 20_240
COPY: Final = Path(__file__).with_name("digits.csv.gz")
"""The table in an image that goes without scikit-learn."""


class DataMissing(RuntimeError):
    """The images are not on this machine; the text says how to get them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Images as rows of 64 brightnesses in 0..1, labels in 0..9; the test part is never trained."""

    train_images: Floats
    train_labels: Labels
    test_images: Floats
    test_labels: Labels


def load() -> Digits:
    """Read all images and hold 360 of them out, always the same ones.

    Raises:
        DataMissing: scikit-learn is not installed.
    """
    with gzip.open(_file(), "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",")
    table = table[np.random.default_rng(SPLIT_SEED).permutation(len(table))]
    images = table[:, :PIXELS] / BRIGHTEST
    labels = table[:, PIXELS].astype(np.int64)
    return Digits(
        train_images=images[HELD_OUT:],
        train_labels=labels[HELD_OUT:],
        test_images=images[:HELD_OUT],
        test_labels=labels[:HELD_OUT],
    )


def _file() -> Path:
    if COPY.exists():
        return COPY
    package = find_spec("sklearn")
    for folder in (package.submodule_search_locations or []) if package else []:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            return file
    raise DataMissing("scikit-learn and its data files are not here: pip install scikit-learn")
