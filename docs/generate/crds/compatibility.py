# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m docs.generate.crds.compatibility [--accept]``: no release breaks stored objects.

Compares the CRDs with those of the last release (``BASELINE``). An object, a manifest or a client
that worked with that release must work with this one: nothing goes, nothing becomes narrower, no
default changes. ``--accept`` writes today's CRDs as the new baseline, at a release.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from docs.generate.crds.definition import KINDS, definition

Schema = Mapping[str, object]
BASELINE: Final = "tests/data/crd/baseline.json"
LEAST: Final = ("minimum", "minLength", "minItems", "minProperties")
MOST: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
FIXED: Final = (
    "type", "format", "pattern", "default", "multipleOf", "exclusiveMinimum", "exclusiveMaximum",
    "uniqueItems", "anyOf", "oneOf", "allOf", "not", "nullable",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
)  # fmt: skip
"""Words of a schema of which any change counts: what is narrower cannot be read off them."""
WIDER: Final = (("format", "int32", "int64"), ("nullable", None, True))
"""Changes of these words that take nothing away."""


def incompatible(before: Schema, after: Schema) -> list[str]:
    """What of a set of CRDs would break users of an earlier one.

    Args:
        before: Spec of each CRD of the earlier set, by its name.
        after: The same of the later set.

    Returns:
        A sentence each, with the path of the field; empty = none.
    """
    return [
        f"{name}: {fault}"
        for name, spec in before.items()
        for fault in (
            _definition(_at(before, name), _at(after, name)) if name in after else ["is gone"]
        )
    ]


def _definition(before: Schema, after: Schema) -> Iterator[str]:
    for word in ("group", "scope", "names"):
        if before.get(word) != after.get(word):
            yield f"{word} changes from {before.get(word)} to {after.get(word)}"
    later = {str(one["name"]): one for one in _schemas(after, "versions")}
    for version in _schemas(before, "versions"):
        name = str(version["name"])
        if name not in later or (version["served"] and not later[name]["served"]):
            yield f"version {name} is no longer served"
            continue
        if version.get("subresources") != later[name].get("subresources"):
            yield f"version {name}: its subresources change"
        old, new = _at(version, "schema"), _at(later[name], "schema")
        yield from _schema(_at(old, "openAPIV3Schema"), _at(new, "openAPIV3Schema"), name)


def _schema(before: Schema, after: Schema, path: str) -> Iterator[str]:
    """Faults of one schema and of those inside it."""
    for word in FIXED:
        old, new = before.get(word), after.get(word)
        if old != new and (word, old, new) not in WIDER:
            yield f"{path}: {word} changes from {old} to {new}"
    yield from _bounds(before, after, path, LEAST, lambda old, new: new > old)
    yield from _bounds(before, after, path, MOST, lambda old, new: new < old)
    yield from _words(before, after, path)
    old_fields, new_fields = _at(before, "properties"), _at(after, "properties")
    for name in old_fields:
        if name in new_fields:
            yield from _schema(_at(old_fields, name), _at(new_fields, name), f"{path}.{name}")
        else:
            yield f"{path}.{name} is gone"
    for word in ("items", "additionalProperties"):
        old, new = before.get(word), after.get(word)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _schema(old, new, f"{path}[]")
        elif old is not None and old != new:
            yield f"{path}: {word} {'is gone' if new is None else 'narrows'}"


def _bounds(
    before: Schema,
    after: Schema,
    path: str,
    words: Sequence[str],
    narrower: Callable[[float, float], bool],
) -> Iterator[str]:
    for word in words:
        old, new = before.get(word), after.get(word)
        if isinstance(new, int | float) and (
            not isinstance(old, int | float) or narrower(old, new)
        ):
            yield f"{path}: {word} narrows from {old} to {new}"


def _words(before: Schema, after: Schema, path: str) -> Iterator[str]:
    """Faults of what an object must hold and of the values and rules it must fit."""
    fields = _at(after, "properties")
    asked = set(_list(after, "required")) - set(_list(before, "required"))
    for name in sorted(map(str, asked)):
        if "default" not in _at(fields, name):
            yield f"{path}.{name} becomes required"
    if "enum" in after:
        refused = [one for one in _list(before, "enum") if one not in _list(after, "enum")]
        if refused or "enum" not in before:
            yield f"{path}: enum refuses {refused or 'what was free'}"
    old_rules = [one["rule"] for one in _schemas(before, "x-kubernetes-validations")]
    for one in _schemas(after, "x-kubernetes-validations"):
        if one["rule"] not in old_rules and not _about_new_field(str(one["rule"]), before):
            yield f"{path}: a rule is new: {one['rule']}"


def _about_new_field(rule: str, before: Schema) -> bool:
    """Whether a rule asks something only of objects with a field that no stored one has."""
    found = re.match(r"!has\(self\.(\w+)\) \|\| ", rule)
    return found is not None and found[1] not in _at(before, "properties")


def _at(node: Schema, word: str) -> Schema:
    found = node.get(word)
    return found if isinstance(found, Mapping) else {}


def _list(node: Schema, word: str) -> list[object]:
    found = node.get(word)
    return found if isinstance(found, list) else []


def _schemas(node: Schema, word: str) -> list[Schema]:
    return [one for one in _list(node, word) if isinstance(one, Mapping)]


def current() -> dict[str, Schema]:
    """The spec of each CRD without texts and columns, as the baseline keeps it."""
    specs: dict[str, Schema] = {}
    for kind in KINDS:
        spec = _at(definition(kind), "spec")
        versions = [
            {word: held for word, held in one.items() if word != "additionalPrinterColumns"}
            for one in _schemas(spec, "versions")
        ]
        specs[kind.info.plural] = {**spec, "versions": [_without_texts(one) for one in versions]}
    return specs


def _without_texts(node: object) -> object:
    if isinstance(node, Mapping):
        return {
            word: _without_texts(held)
            for word, held in node.items()
            if not (word in ("description", "message") and isinstance(held, str))
        }
    return [_without_texts(one) for one in node] if isinstance(node, list) else node


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or write the baseline; the exit status is 1 when something would break."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.generate.crds.compatibility", description=__doc__
    )
    parser.add_argument("--accept", action="store_true", help="write today's CRDs as the baseline")
    options = parser.parse_args(arguments)
    path = Path(BASELINE)
    now = current()
    if options.accept:
        path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"written: {path}")
        return 0
    found = incompatible(json.loads(path.read_text(encoding="utf-8")), now)
    print("\n".join(found) or "the CRDs take everything that the last release's took")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
