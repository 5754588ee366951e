# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.output_tokens import MOST_TOKENS
from ullage_router.cache_use import PAGE_BYTES, PageTooLong, cache_use
from ullage_router.generation import Generate, GenerationKey, TokenMeter, read
from ullage_router.generation_times import TokenPace


def an_answer(texts: list[str], usage: int | None = None) -> bytes:
    chunks: list[object] = [{"choices": [{"text": text, "finish_reason": None}]} for text in texts]
    if usage is not None:
        chunks.append({"choices": [], "usage": {"completion_tokens": usage}})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


@given(
    texts=st.lists(st.text(max_size=8) | st.just("\ndata: x"), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    usage=st.none() | st.integers(1, 10**6),
)
def test_however_an_answer_is_cut_in_parts_its_tokens_are_the_same(
    texts: list[str], cuts: list[int], usage: int | None
) -> None:
    whole = an_answer(texts, usage)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    meter = TokenMeter()
    for first, last in itertools.pairwise(places):
        meter.take(whole[first:last], 1.0)
    assert meter.tokens == (len(texts) if usage is None else usage)


def test_an_answer_that_its_bound_ends_says_so() -> None:
    meter = TokenMeter()
    meter.take(b'data: {"choices":[{"text":"a","finish_re', 1.0)
    meter.take(b'ason":"length"}]}\n\n', 2.0)
    assert (meter.cut, meter.tokens, meter.first_s, meter.last_s) == (True, 1, 1.0, 2.0)


def test_a_wild_usage_is_bounded() -> None:
    meter = TokenMeter()
    meter.take_whole(b'{"usage":{"completion_tokens":999999999}}', 1.0)
    assert meter.tokens == MOST_TOKENS


@pytest.mark.parametrize(
    ("body", "most", "streamed"),
    [
        ({"max_tokens": 8, "stream": True}, 8, True),
        ({"max_completion_tokens": 9, "max_tokens": 8, "n": 2}, 18, False),
        ({"max_tokens": -1, "n": "many"}, 0, False),
        ({"max_tokens": True, "stream": 1}, 0, False),
        ({"max_tokens": 10**18, "n": 10**18}, MOST_TOKENS, False),
        ({"max_tokens": 1.5, "model": ["m"]}, 0, False),
    ],
)
def test_fields_that_are_not_as_expected_say_nothing(
    body: dict[str, object], most: int, streamed: bool
) -> None:
    found = read(json.dumps(body).encode())
    assert (found.most_tokens, found.streamed) == (most, streamed)


@given(
    app=st.from_regex(r"[A-Za-z0-9._-]{1,63}", fullmatch=True),
    model=st.text(max_size=20),
    most=st.integers(0, MOST_TOKENS),
    prompt=st.integers(0, 2**22),
    whole=st.booleans(),
)
def test_a_key_is_read_as_it_was_written(
    app: str, model: str, most: int, prompt: int, whole: bool
) -> None:
    generate = Generate(model=model, most_tokens=most, streamed=True, prompt_bytes=prompt)
    key = GenerationKey.of(app, generate, whole=whole)
    assert GenerationKey.read(key.text) == key
    assert most <= key.most_tokens or most == 0
    assert key.most_tokens < 2 * max(most, 1)


@given(st.lists(st.tuples(st.integers(1, 32), st.floats(1e-4, 1.0)), max_size=30))
def test_more_requests_never_fit_a_shorter_time_between_tokens(
    seen: list[tuple[int, float]],
) -> None:
    pace = TokenPace()
    for running, between_s in seen:
        pace.add(running, between_s)
    fixed, each = pace.line()
    assert fixed >= -1e-9
    assert each >= 0
    fits = [pace.most_within(limit, 64) for limit in (0.001, 0.01, 0.1, 1.0, 10.0)]
    assert fits == sorted(fits)
    assert all(1 <= one <= 64 for one in fits)


def test_the_pace_of_tokens_is_learned() -> None:
    pace = TokenPace()
    for _ in range(20):
        for running in (1, 3, 8):
            pace.add(running, 0.01 + 0.002 * running)
    assert pace.between_s(5) == pytest.approx(0.02)
    assert pace.most_within(0.0201, 32) == 5
    assert pace.most_within(1.0, 32) == 9  # one more than was seen


def test_a_pace_beside_always_as_many_is_flat() -> None:
    pace = TokenPace()
    for _ in range(9):
        pace.add(4, 0.02)
    assert pace.between_s(16) == pytest.approx(0.02)
    assert (pace.most_within(0.03, 32), pace.most_within(0.01, 32)) == (5, 1)


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_whatever_a_page_holds_a_cache_is_a_part_or_unknown(page: bytes) -> None:
    for text in (page, b"vllm:kv_cache_usage_perc " + page, b"sglang:token_usage{" + page):
        found = cache_use(text)
        assert found is None or 0 <= found <= 1


def test_the_fullest_engine_counts() -> None:
    page = b'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
    assert cache_use(page) == 0.5
    assert cache_use(b"# HELP vllm:kv_cache_usage_perc 1\nvllm:kv_cache_usage_perc_total 1") is None
    assert cache_use(b"llamacpp:requests_processing 1") is None


def test_a_page_that_is_too_long_is_no_page() -> None:
    with pytest.raises(PageTooLong):
        cache_use(b"#" * (PAGE_BYTES + 1))


def test_numbers_of_no_time_are_left_out() -> None:
    pace = TokenPace()
    for wild in (0.0, -1.0, math.inf, math.nan):
        pace.add(1, wild)
    assert not pace.known
