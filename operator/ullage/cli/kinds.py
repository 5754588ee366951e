# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Our kinds by the words that kubectl accepts for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.labels import GROUP

SHORT: Final[Mapping[str, str]] = {
    "TrainingJob": "tj",
    "InferenceDeployment": "infd",
    "TuningJob": "tune",
    "WorkloadProfile": "wp",
    "GPUNode": "gn",
    "Node": "no",
}
"""Kinds whose names commands accept, with their short names."""


def words_of(kind: str) -> tuple[str, ...]:
    """Words for a kind: short name, singular, plural."""
    return SHORT[kind], kind.lower(), f"{kind.lower()}s"


WORDS: Final[Mapping[str, str]] = {word: kind for kind in SHORT for word in words_of(kind)}


def split(asked: str) -> tuple[str, str]:
    """Word of a kind, in lower case and without our group, and name; no word for a bare name."""
    word, slash, name = asked.partition("/")
    return (word.lower().removesuffix(f".{GROUP}"), name) if slash else ("", asked)


def name_of(asked: str, *kinds: str) -> str:
    """The name in ``NAME``, or in ``KIND/NAME`` where the kind is one of these.

    Raises:
        ValueError: it is of another kind, or has no name; the text has the correct form.
    """
    word, name = split(asked)
    known = [word for kind in kinds for word in words_of(kind)]
    if (word and word not in known) or not name:
        raise ValueError(f"{asked!r}: write NAME, or one of {', '.join(known)} before /NAME")
    return name
