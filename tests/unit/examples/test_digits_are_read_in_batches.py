# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The batched digit server reads what the single one reads, behind a router, too."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from digits import data, load
from digits.batched import BatchReader
from digits.data import BRIGHTEST
from digits.network import Network
from digits.reader import Reader
from fakes.routed import routed
from ullage_router.settings import Backend
from ullage_run.serving import ModelServer


def reader() -> Reader:
    network = Network(16)
    return Reader(network, network.initial(7))


def test_a_batch_has_the_digits_of_its_rows_alone() -> None:
    single, images = reader(), data.load().test_images[:20] * BRIGHTEST
    (found,) = BatchReader(single)({"pixels": images}).values()
    alone = [
        int(single.network.scores(single.theta, row[None] / BRIGHTEST)[0].argmax())
        for row in images
    ]
    assert found.tolist() == alone


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"pixels": np.zeros(64)},
        {"pixels": np.zeros((2, 63))},
        {"pixels": np.full((1, 64), 17.0)},
        {"pixels": np.full((1, 64), np.nan)},
    ],
)
def test_what_is_no_image_is_refused(inputs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pixels"):
        BatchReader(reader())(inputs)


async def test_the_load_generator_reads_digits_through_a_router(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = ModelServer(BatchReader(reader()), "digits")
    await server.start("127.0.0.1", 0)
    backend = Backend(url=f"http://127.0.0.1:{server.port}")
    try:
        async with routed(backend) as router:
            words = ["--batched", "--url", router.url, "--requests", "60", "--workers", "8"]
            code = await asyncio.to_thread(load.main, [*words, "--fail-on-error"])
            assert code == 0
            assert "requests 60 errors 0" in capsys.readouterr().out
            assert await router.metric("ullage_requests_total", outcome="met") == 60
    finally:
        await server.stop()
