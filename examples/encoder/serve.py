# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Encodes texts in batches, behind a router: ``python -m encoder.serve``.

It speaks the Open Inference Protocol: `POST /v2/models/encoder/infer` with the tensor `text`
(BYTES, shape (rows,)), and answers with `vector` of shape (rows, 256). Settings: PORT 8080, SEED 7.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Final

from digits.plan import BadSetting, whole
from encoder.network import Encoder, made
from ullage_run.serving import Arrays, serve

MODEL: Final = "encoder"
INPUT: Final = "text"
OUTPUT: Final = "vector"
PORT: Final = 8080
SEED: Final = 7


@dataclass(frozen=True, slots=True)
class BatchEncoder:
    """An encoder as a function of arrays."""

    encoder: Encoder

    def __call__(self, inputs: Arrays) -> Arrays:
        """Encode a batch of texts.

        Args:
            inputs: `text` of shape (rows,), texts.

        Returns:
            `vector` of shape (rows, 256).

        Raises:
            ValueError: it is no such tensor.
        """
        texts = inputs.get(INPUT)
        if texts is None or texts.ndim != 1 or texts.dtype != object or not len(texts):
            raise ValueError(f"expected one tensor {INPUT} of datatype BYTES and shape (rows,)")
        return {OUTPUT: self.encoder.encode([str(text) for text in texts])}


def main() -> int:
    """Serve until told to stop.

    Returns:
        The exit code.
    """
    try:
        port = whole(os.environ, "PORT", PORT)
        seed = whole(os.environ, "SEED", SEED, least=0)
    except BadSetting as error:
        print(error, file=sys.stderr)
        return 2
    serve(BatchEncoder(made(seed)), name=MODEL, port=port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
