# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder gives a text the same vector in any company, behind a router, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import load
from encoder.network import LONGEST, WIDTH, made
from encoder.serve import BatchEncoder
from fakes.routed import routed
from ullage_router.settings import Backend
from ullage_run.serving import ModelServer

ENCODER = made(7)


@pytest.mark.slow
@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_a_text_has_its_vector_in_any_company(texts: list[str]) -> None:
    together = ENCODER.encode(texts)
    assert together.shape == (len(texts), WIDTH)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(ENCODER.encode([text])[0], vector, atol=2e-5)


def test_order_and_words_matter_up_to_the_longest_and_seeds_make_encoders() -> None:
    first, second, cut = ENCODER.encode(["one two", "two one", "one two"])
    assert np.abs(first - second).max() > 1e-3
    assert (first == cut).all()
    long = "word " * LONGEST
    np.testing.assert_allclose(*ENCODER.encode([long, long + "more"]))
    assert np.abs(made(8).encode(["one two"])[0] - first).max() > 1e-3


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"text": np.zeros(2)},
        {"text": np.array([], dtype=object)},
        {"text": np.array([["a"]], dtype=object)},
    ],
)
def test_what_is_no_text_is_refused(inputs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="BYTES"):
        BatchEncoder(ENCODER)(inputs)


async def test_an_open_load_is_answered_through_a_router() -> None:
    server = ModelServer(BatchEncoder(ENCODER), "encoder")
    await server.start("127.0.0.1", 0)
    try:
        async with routed(Backend(url=f"http://127.0.0.1:{server.port}")) as router:
            seen = await load.offer(router.url, count=20, rate=200, seed=1)
    finally:
        await server.stop()
    assert (len(seen.seconds), seen.refused, seen.failed) == (20, 0, 0)


async def test_what_no_one_answers_is_counted_and_a_rate_is_above_nothing() -> None:
    seen = await load.offer("http://127.0.0.1:9", count=3, rate=100, seed=1)
    assert (seen.seconds, seen.failed) == ([], 3)
    with pytest.raises(ValueError, match="above 0"):
        await load.offer("http://127.0.0.1:9", count=1, rate=0, seed=1)
