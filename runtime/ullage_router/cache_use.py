# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How full the KV cache of a generative server is, read from its page of metrics.

A full cache makes a server stop or recompute what it has begun, so nothing more is sent to it
above a limit. The page is the server's own claim: what is no part between 0 and 1 says nothing.
"""

from __future__ import annotations

import re
from typing import Final

PAGE: Final = "/metrics"
PAGE_BYTES: Final = 4 << 20
GAUGES: Final = (
    b"vllm:kv_cache_usage_perc",
    b"vllm:gpu_cache_usage_perc",
    b"sglang:token_usage",
    b"llamacpp:kv_cache_usage_ratio",
)
"""Parts between 0 and 1: vLLM since 0.10 and before (vllm-project/vllm#18354), SGLang 0.4 and 0.5,
llama.cpp until May 2025 (ggml-org/llama.cpp#13660); a later llama.cpp says nothing of its cache.
"""
_SAMPLE: Final = re.compile(
    rb"^(?:" + b"|".join(GAUGES) + rb")(?:\{[^\n]*\})?[ \t]+([^ \t\r\n]{1,40})", re.MULTILINE
)
SAMPLES: Final = 1024
"""Samples that are read: a server has one for each of its engines."""


class PageTooLong(ValueError):
    """A page has more bytes than it may."""


def cache_use(page: bytes) -> float | None:
    """The part of the cache that is used, 0 to 1, of the fullest engine; ``None`` = it is not said.

    Raises:
        PageTooLong: no page of metrics has so many bytes.
    """
    if len(page) > PAGE_BYTES:
        raise PageTooLong(f"{PAGE} has more than {PAGE_BYTES >> 20} MiB")
    fullest: float | None = None
    for at, found in enumerate(_SAMPLE.finditer(page)):
        if at >= SAMPLES:
            break
        part = _part(found[1])
        if part is not None and (fullest is None or part > fullest):
            fullest = part
    return fullest


def _part(text: bytes) -> float | None:
    try:
        part = float(text)
    except ValueError:
        return None
    return part if 0 <= part <= 1 else None
