# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The grammar of protocol v3: words, options, limits. It knows no server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fake_mps.hardware import parse_memory_mib
from fake_mps.model import Limits

_POSITIONAL = 3


class Failed(Exception):
    """A call that cannot be carried out; printed, exit status 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One module call, taken apart."""

    module: str
    verb: str
    uid: int
    positional: tuple[str, ...]
    options: Mapping[str, str]
    flags: frozenset[str]

    def first(self, what: str) -> str:
        """The first positional argument."""
        if not self.positional:
            raise Failed(f"Missing argument <{what}>.")
        return self.positional[0]

    def option(self, name: str) -> str:
        """An option that must be there."""
        if name not in self.options:
            raise Failed(f"Missing option --{name}=.")
        return self.options[name]

    def field(self, fields: Mapping[str, str], at: int) -> str:
        """The field that a positional argument names."""
        name = self.positional[at] if len(self.positional) > at else ""
        if name not in fields:
            raise Failed(f"Unknown field '{name}', known are: {', '.join(fields)}.")
        return fields[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLimits:
    """What a ``set`` asks for; None leaves it as it is."""

    percent: float | None = None
    memory_mib: int | None = None
    priority: int | None = None


def parse(words: Sequence[str], uid: int) -> Call:
    """Take a call apart: positional words, ``--key=value`` or ``key=value``, and flags."""
    module, verb, *rest = (*words, "", "")[: max(2, len(words))]
    positional: list[str] = []
    options: dict[str, str] = {}
    flags: set[str] = set()
    for word in rest:
        key, equals, value = word.removeprefix("--").partition("=")
        if equals:
            options[key] = value
        elif word.startswith("--"):
            flags.add(key)
        else:
            positional.append(word)
    return Call(
        module=module,
        verb=verb,
        uid=uid,
        positional=tuple(positional[:_POSITIONAL]),
        options=options,
        flags=frozenset(flags),
    )


def read_limits(options: Mapping[str, str]) -> WantedLimits:
    """Read the three limit options.

    Raises:
        Failed: none of them, or one that cannot be read.
    """
    try:
        percent = options.get("active-thread-percentage")
        memory = options.get("pinned-memory-limit")
        priority = options.get("client-priority")
        wanted = WantedLimits(
            percent=None if percent is None else float(percent),
            memory_mib=None if memory is None else _memory_mib(memory),
            priority=None if priority is None else int(priority),
        )
    except ValueError as error:
        raise Failed(f"Invalid value: {error}.") from error
    if wanted == WantedLimits():
        raise Failed("At least one option is required.")
    if wanted.percent is not None and not 0 <= wanted.percent <= 100:
        raise Failed("Active thread percentage must be between 1 and 100.")
    if wanted.priority not in (None, 0, 1):
        raise Failed("Client priority is 0 (normal) or 1 (below normal).")
    return wanted


def _memory_mib(text: str) -> int:
    if text[-1:].upper() == "K" and text[:-1].isdigit():
        return int(text[:-1]) // 1024
    return parse_memory_mib(text)


def limit_text(limits: Limits) -> str:
    """A memory limit as it was most likely typed: whole gibibytes as G."""
    mib = next(iter(limits.memory_mib.values()), None)
    if mib is None:
        return "-"
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
