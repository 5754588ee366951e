# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads digits in batches, behind a router: ``python -m digits.batched``.

It speaks the Open Inference Protocol: `POST /v2/models/digits/infer` with the tensor `pixels` of
shape (rows, 64), and answers with the tensor `digit` of as many rows. Settings: PORT 8080, WEIGHTS,
HIDDEN and TRAIN_STEPS as those of `digits.serve`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from digits import checkpoint, data
from digits.data import BRIGHTEST, PIXELS
from digits.plan import BadSetting, Plan, whole
from digits.reader import Reader
from digits.serve import PORT, TRAIN_STEPS, prepare
from ullage_run.serving import Arrays, serve

INPUT: Final = "pixels"
OUTPUT: Final = "digit"
MODEL: Final = "digits"


@dataclass(frozen=True, slots=True)
class BatchReader:
    """A trained network as a function of arrays."""

    reader: Reader

    def __call__(self, inputs: Arrays) -> Arrays:
        """Read a batch of images.

        Args:
            inputs: `pixels` of shape (rows, 64), each from 0 to 16.

        Returns:
            `digit` of shape (rows,).

        Raises:
            ValueError: they are no such images.
        """
        pixels = inputs.get(INPUT)
        if pixels is None or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
            raise ValueError(f"expected one tensor {INPUT} of shape (rows, {PIXELS})")
        images = pixels.astype(np.float64) / BRIGHTEST
        if not ((images >= 0) & (images <= 1)).all():
            raise ValueError(f"every number of {INPUT} is from 0 to {BRIGHTEST}")
        scores = self.reader.network.scores(self.reader.theta, images)
        return {OUTPUT: scores.argmax(axis=1).astype(np.int64)}


def main() -> int:
    """Serve until told to stop.

    Returns:
        The exit code.
    """
    try:
        steps = whole(os.environ, "TRAIN_STEPS", TRAIN_STEPS)
        port = whole(os.environ, "PORT", PORT)
        reader = prepare(replace(Plan.from_environment(os.environ), steps=steps))
    except (BadSetting, checkpoint.CheckpointUnusable, data.DataMissing) as error:
        print(error, file=sys.stderr)
        return 2
    serve(BatchReader(reader), name=MODEL, port=port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
