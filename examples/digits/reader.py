# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the server does with a request's body: pixels in, a digit out, or a sentence why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np

from digits.data import BRIGHTEST, PIXELS, Floats
from digits.network import Network

EXPECTED: Final = f'expected {{"pixels": [{PIXELS} numbers from 0 to {BRIGHTEST:.0f}]}}'


class BadRequest(ValueError):
    """The body is no image; the text says what is expected."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The digit that was read, and how sure the network is (0..1)."""

    digit: int
    probability: float

    def to_json(self) -> bytes:
        """The body of the answer."""
        return json.dumps({"digit": self.digit, "probability": round(self.probability, 4)}).encode()


@dataclass(frozen=True, slots=True)
class Reader:
    """A trained network."""

    network: Network
    theta: Floats

    def read(self, body: bytes) -> Answer:
        """Read one image.

        Raises:
            BadRequest: the body is no image.
        """
        scores = self.network.scores(self.theta, _image(body))[0]
        digit = int(scores.argmax())
        return Answer(digit, float(np.exp(scores[digit])))


def _image(body: bytes) -> Floats:
    """Parse a body to a row of brightnesses (1, 64).

    Raises:
        BadRequest: it is no image.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{EXPECTED}: {error}") from error
    pixels = raw.get("pixels") if isinstance(raw, dict) else None
    if not isinstance(pixels, list) or len(pixels) != PIXELS:
        raise BadRequest(EXPECTED)
    for position, value in enumerate(pixels):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= BRIGHTEST:  # NaN lies within nothing
            raise BadRequest(f"{EXPECTED}: number {position} is {repr(value)[:20]}")
    return np.array([pixels], dtype=np.float64) / BRIGHTEST
