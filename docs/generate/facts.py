# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What settings and metrics say of themselves: docstrings of fields, families of a scrape."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ullage.process.environment import variables
from ullage.process.metric_families import METRIC

_Figures = TypeVar("_Figures")
WORDS: Final = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    Path: "path",
    str: "text",
}

Texts = Mapping[tuple[str, str], str]
"""Docstring of an attribute, by class and field."""


class FactsMissing(Exception):
    """A setting or a metric does not say what it is; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable."""

    variable: str
    kind: str
    """text, path, number, whole number, true or false, or one of."""
    choices: Sequence[str]
    default: str | None
    """As it would stand in the environment; None = required."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFact:
    """One family as Prometheus names it."""

    name: str
    kind: str
    labels: Sequence[str]
    meaning: str


def attribute_texts(source: Path) -> Texts:
    """The docstrings under the annotated fields of every class of a file."""
    found: dict[tuple[str, str], str] = {}
    for owner in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(owner, ast.ClassDef):
            for field, after in pairwise(owner.body):
                words = _words(after)
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and words
                ):
                    found[owner.name, field.target.id] = words
    return found


def example_of(kind: type[_Figures]) -> _Figures:
    """A record of figures with one sample of every metric that its fields declare."""
    values: dict[str, object] = {}
    for item in fields(kind):  # type: ignore[arg-type]
        family = item.metadata.get(METRIC)
        made: object = item.default_factory
        if family is not None:
            values[item.name] = {("x",) * len(family.labels): 1} if family.labels else 1
        elif isinstance(made, type) and is_dataclass(made):
            values[item.name] = example_of(made)
    return kind(**values)


def metric_facts(exposition: str) -> list[MetricFact]:
    """The families of a scrape, sorted by name.

    Raises:
        FactsMissing: a family has no sample, so that its labels are unknown, or no text.
    """
    families = [f for f in text_string_to_metric_families(exposition) if not _birth(f)]
    for family in families:
        if not (family.samples and family.documentation):
            raise FactsMissing(f"metric {family.name} needs a text and an example")
    return sorted((_fact(family) for family in families), key=lambda fact: fact.name)


def _fact(family: Metric) -> MetricFact:
    labels = {label for sample in family.samples for label in sample.labels} - {"le"}
    total = "_total" if family.type == "counter" else ""
    return MetricFact(
        name=family.name.removesuffix(total) + total,
        kind=family.type,
        labels=sorted(labels),
        meaning=family.documentation,
    )


def _birth(family: Metric) -> bool:
    """Whether a family only says since when another one counts."""
    return family.type == "gauge" and family.name.endswith("_created")


def meaning_of(texts: Texts, owner: str, field: str) -> str:
    """The docstring of a field.

    Raises:
        FactsMissing: it has none.
    """
    try:
        return texts[owner, field]
    except KeyError:
        raise FactsMissing(f"{owner}.{field} has no docstring") from None


def settings_of(kind: type, prefix: str, source: Path) -> list[Setting]:
    """Every setting of a process, in the order of its code.

    Raises:
        FactsMissing: a field has no docstring.
    """
    texts = attribute_texts(source)
    return [
        Setting(
            variable=variable.name,
            kind=WORDS.get(variable.kind, "one of"),
            choices=[str(member) for member in _members(variable.kind)],
            default=None if variable.required else _default(variable.field.default),
            meaning=meaning_of(texts, variable.owner.__name__, variable.field.name),
        )
        for variable in variables(kind, prefix)
    ]


def _members(kind: type) -> tuple[StrEnum, ...]:
    return tuple(kind) if issubclass(kind, StrEnum) else ()


def _default(value: object) -> str:
    """As it would stand in the environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(node: ast.stmt) -> str:
    """The text of a docstring, in one line; empty = the statement is none."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""
