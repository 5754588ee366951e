# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a router by Triton's own client: ``python ask_by_tritonclient.py HOST:PORT COUNT``.

It asks with inputs in each form for outputs in each form, from many threads; each answer must be
the input. It prints how many were.
"""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.http as triton

DTYPES = {
    "FP32": np.float32,
    "FP16": np.float16,
    "INT64": np.int64,
    "BOOL": np.bool_,
    "BYTES": np.object_,
}
FORMS = list(itertools.product((True, False), (None, True, False), (None, "gzip", "deflate")))
"""Raw input, raw output (None = the default of the client), compression."""


def ask(number: int) -> bool:
    """One request; whether its answer is its input."""
    datatype = list(DTYPES)[number % len(DTYPES)]
    raw_input, raw_output, compression = FORMS[number // len(DTYPES) % len(FORMS)]
    values = [[str(number).encode() if datatype == "BYTES" else number % 2, 1, 0, 1]]
    if datatype == "BYTES":
        values = [[str(one).encode() if not isinstance(one, bytes) else one for one in values[0]]]
    array = np.array(values, DTYPES[datatype])
    with triton.InferenceServerClient(sys.argv[1], network_timeout=60.0) as client:
        given = triton.InferInput("x", [1, 4], datatype)
        given.set_data_from_numpy(array, binary_data=raw_input)
        outputs = None
        if raw_output is not None:
            outputs = [triton.InferRequestedOutput("x", binary_data=raw_output)]
        result = client.infer(
            "same", [given], outputs=outputs, request_compression_algorithm=compression
        )
        answered = result.as_numpy("x").astype(array.dtype).reshape(-1).tolist()
        # from JSON the client gives texts, from raw bytes it gives bytes
        texts = [one.decode() if isinstance(one, bytes) else one for one in answered]
        asked = [one.decode() if isinstance(one, bytes) else one for one in array[0].tolist()]
        return texts == asked


if __name__ == "__main__":
    with ThreadPoolExecutor(24) as pool:
        print(sum(pool.map(ask, range(int(sys.argv[2])))))
