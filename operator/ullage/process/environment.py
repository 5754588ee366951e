# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings from environment variables: a tree of dataclasses, one variable per field.

A field ``cdi_dir`` of a section ``paths`` is ``<prefix>PATHS_CDI_DIR``. An unknown variable with
the prefix is an error: a misspelt setting must never be a silent default. Shared by operator and
node agent.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)\w*)$")
SERVICE_URL: Final = re.compile(r"^(tcp|udp|sctp)://")
"""Both: variables injected by kubelet for a Service whose name begins like the prefix."""

_T = TypeVar("_T")


class SettingsError(ValueError):
    """A setting is unknown, missing or malformed; the text has the name and the allowed values."""


class LogLevel(StrEnum):
    """Verbosity of a process."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable: the field that it sets, the field's class, and its type."""

    name: str
    owner: type
    field: Field[Any]
    kind: type

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.field.default is MISSING and self.field.default_factory is MISSING


def variables(kind: type, prefix: str) -> Iterator[Variable]:
    """Every variable of a tree of settings, in the order of its code."""
    hints = get_type_hints(kind)
    for item in fields(kind):
        hint: type = hints[item.name]
        name = prefix + item.name.upper()
        if is_dataclass(hint):
            yield from variables(hint, f"{name}_")
        else:
            yield Variable(name=name, owner=kind, field=item, kind=hint)


def read_settings(
    kind: type[_T],
    prefix: str,
    environment: Mapping[str, str],
    problems_of: Callable[[_T], Iterable[str]],
) -> _T:
    """Read the settings from environment variables.

    Args:
        kind: Dataclass of the whole tree.
        prefix: Prefix of every variable.
        environment: Environment of the process.
        problems_of: Returns the problems of parsed settings, as text.

    Raises:
        SettingsError: a variable with the prefix is unknown or malformed, or a needed one is
            missing; the text names all of them.
    """
    values: dict[tuple[type, str], object] = {}
    problems: list[str] = []
    known = {variable.name: variable for variable in variables(kind, prefix)}
    for name, variable in known.items():
        raw = environment.get(name)
        if raw is None:
            if variable.required:
                problems.append(f"{name} is not set; it has no default")
            continue
        try:
            values[variable.owner, variable.field.name] = _value(raw.strip(), variable.kind)
        except ValueError as error:
            problems.append(f"{name}={raw!r}: {error}")
    for name in sorted(environment):
        if name.startswith(prefix) and name not in known and not _injected(name, environment[name]):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "no such setting"
            problems.append(f"{name} is unknown; {hint}")
    if not problems:
        settings = _made(kind, values)
        problems += problems_of(settings)
    if problems:
        raise SettingsError("; ".join(problems))
    return settings


def _made(kind: type[_T], values: Mapping[tuple[type, str], object]) -> _T:
    hints = get_type_hints(kind)
    given: dict[str, object] = {}
    for item in fields(kind):  # type: ignore[arg-type]  # every kind is a dataclass
        if is_dataclass(hints[item.name]):
            given[item.name] = _made(hints[item.name], values)
        elif (kind, item.name) in values:
            given[item.name] = values[kind, item.name]
    return kind(**given)


def _injected(name: str, value: str) -> bool:
    return bool(SERVICE_LINK.search(name) or SERVICE_URL.match(value))


def _boolean(raw: str) -> bool:
    if raw.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return raw.lower() == "true"


def _whole(raw: str) -> int:
    if not (raw.isascii() and raw.isdigit()) or len(raw) > 9:
        raise ValueError("expected a whole number of at most nine digits")
    return int(raw)


def _number(raw: str) -> float:
    number = float(raw)
    if not 0 <= number < math.inf:
        raise ValueError("expected seconds, or another number, of at least 0")
    return number


def _path(raw: str) -> Path:
    if not raw.startswith("/"):
        raise ValueError("expected an absolute path")
    return Path(raw)


_PARSERS: Final[Mapping[type, Callable[[str], object]]] = {
    bool: _boolean,
    int: _whole,
    float: _number,
    Path: _path,
    str: str,
}


def _value(raw: str, kind: type) -> object:
    if kind in _PARSERS:
        return _PARSERS[kind](raw)
    assert issubclass(kind, StrEnum)
    allowed = [member.value for member in kind]
    if raw not in allowed:
        raise ValueError(f"expected one of {', '.join(allowed)}")
    return kind(raw)
