# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of the chart: the comments of ``values.yaml`` become the schema's texts and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from docs.generate.facts import FactsMissing, Setting
from docs.generate.pages import NOTICE, cell

VALUES: Final = "charts/ullage/values.yaml"
Tree = dict[str, object]
SETTINGS: Final = {"operatorSettings": "operator.settings", "nodeSettings": "node.settings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of the chart.

    Attributes:
        path: Keys from the root, joined by dots.
        default: As YAML on one line.
        meaning: The comment above it.
    """

    path: str
    default: str
    meaning: str


def chart_values(text: str) -> dict[str, Value]:
    """Every key of a ``values.yaml`` by its path, mappings too; where no comment is, no meaning."""
    root = yaml.compose(text)
    lines = text.splitlines()
    return {value.path: value for value in _values(root, "", lines)}


def described(schema: Tree, values: Mapping[str, Value], settings: Sequence[Setting]) -> None:
    """Give every value and setting of a schema its ``description``, in place.

    Raises:
        FactsMissing: a value that can be set has no comment in ``values.yaml``.
    """
    for path, entry in _entries(schema):
        found = values.get(path)
        if found and found.meaning:
            entry["description"] = found.meaning
        elif found and "properties" not in entry:
            raise FactsMissing(f"{VALUES}: {path} needs a comment above it")
    meanings = {row.variable: row.meaning for row in settings}
    definitions = schema["definitions"]
    assert isinstance(definitions, dict)
    for name in SETTINGS:
        for variable, entry in definitions.get(name, {}).get("properties", {}).items():
            entry["description"] = meanings[variable]


def values_page(schema: Tree, values: Mapping[str, Value]) -> str:
    """The page ``docs/reference/values.md``: path, default and meaning of each value."""
    rows = [
        f"| `{path}` | `{values[path].default}` | {cell(values[path].meaning)} |"
        for path, entry in _entries(schema)
        if path in values and "properties" not in entry
    ]
    head = [
        NOTICE, "", "# Values of the chart", "",
        "A value that is unknown or malformed is refused, with its path. "
        "[Settings](settings.md) lists what `operator.settings` and `node.settings` take.", "",
        "| Value | Default | Meaning |", "|---|---|---|",
    ]  # fmt: skip
    return "\n".join([*head, *rows]) + "\n"


def _entries(schema: Mapping[str, object], above: str = "") -> Iterator[tuple[str, Tree]]:
    """Properties of a schema that stand in it itself, by path, outer ones first."""
    properties = schema.get("properties", {})
    assert isinstance(properties, dict)
    for key, entry in properties.items():
        yield f"{above}{key}", entry
        yield from _entries(entry, f"{above}{key}.")


def _values(node: yaml.Node | None, above: str, lines: Sequence[str]) -> Iterator[Value]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = f"{above}{key.value}"
            held = json.dumps(yaml.safe_load(yaml.serialize(value)), ensure_ascii=False)
            yield Value(path=path, default=held, meaning=_comment(lines, key.start_mark))
            yield from _values(value, f"{path}.", lines)


def _comment(lines: Sequence[str], mark: yaml.Mark) -> str:
    """The lines of comment directly above a key, in its own column."""
    begin = " " * mark.column + "# "
    words: list[str] = []
    for line in reversed(lines[: mark.line]):
        if not line.startswith(begin):
            break
        words.insert(0, line.removeprefix(begin))
    return " ".join(words)
