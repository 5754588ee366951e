# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Object -> model -> JSON -> model loses and changes nothing.

What a rule refuses of it the model refuses too: both forms of a rule see the same objects.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from docs.generate.crds.definition import KINDS, schema
from fakes.examples import examples
from golden_manifests import Golden, goldens
from structure import list_faults, shape_faults, unknown_fields
from ullage.api.base import PERCENTILE_PATTERN, Resource
from ullage.api.gpunode import GPUNode
from ullage.api.nodespec import GPU_NODE_SPEC
from ullage.api.rules import RULES
from unit.api.test_rules_refuse_what_they_say import refusals, with_defaults

READ = {rule.message for rule in RULES if rule.holds is not None}
"""Messages of the rules that are checked on reading."""
MOST_ITEMS = 3
MOST_CHARACTERS = 24
TIMES = st.datetimes(timezones=st.just(None)).map(lambda time: f"{time.isoformat()}Z")


def values(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a structural schema (rules aside)."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        if "pattern" not in node:  # any number, as rules say
            return st.integers(0, 10**15 - 1) | st.decimals("0.001", "99.9", places=3).map(str)
        if node["pattern"] == PERCENTILE_PATTERN:
            return st.integers(1, 99) | st.decimals("0.001", "99.999", places=3).map(str)
        if not re.search(node["pattern"], "4Gi"):  # a decimal number
            return st.integers(1, 9999) | st.decimals("1", "999.9", places=3).map(str)
        return st.integers(0, 2**40) | st.from_regex(r"[1-9][0-9]{0,5}(Ki|Mi|Gi)", fullmatch=True)
    match node["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(node.get("minimum", -(2**31)), node.get("maximum", 2**53))
        case "number":
            low, high = node.get("minimum"), node.get("maximum")
            return st.floats(low, high, allow_nan=False, allow_infinity=False)
        case "string":
            return texts(node)
        case "array":
            most = min(MOST_ITEMS, node["maxItems"])
            keys = node.get("x-kubernetes-list-map-keys")
            mark = (lambda item: tuple(item.get(key) for key in keys)) if keys else repr
            items = values(node["items"])
            return st.lists(items, min_size=node.get("minItems", 0), max_size=most, unique_by=mark)
        case _:
            return objects(node)


def texts(node: dict[str, Any]) -> st.SearchStrategy[str]:
    if node.get("format") == "date-time":
        return TIMES
    most = min(MOST_CHARACTERS, node.get("maxLength", MOST_CHARACTERS))
    if "pattern" in node:
        found = st.from_regex(node["pattern"].replace("$", r"\Z"))
        return found.filter(lambda text: len(text) <= most)
    letters = st.characters(codec="utf-8", exclude_categories=("Cs",))
    return st.text(letters, min_size=node.get("minLength", 0), max_size=most)


def objects(node: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in node:
        return st.dictionaries(
            st.text(max_size=8), values(node["additionalProperties"]), max_size=2
        )
    fields = node["properties"]
    if {"type", "configMap"} <= fields.keys():  # of a price source one, as its rule says
        return st.sampled_from(sorted(fields.keys() - {"type"})).flatmap(
            lambda field: st.fixed_dictionaries(
                {"type": values(fields["type"]), field: values(fields[field])}
            )
        )
    # A key of a list map that has a default is always sent: the defaults make it part of the key.
    needed = {*node.get("required", ()), *({"index"} & fields.keys())}
    return st.fixed_dictionaries(
        {name: values(child) for name, child in fields.items() if name in needed},
        optional={name: values(child) for name, child in fields.items() if name not in needed},
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_object_survives_the_model(kind: type[Resource]) -> None:
    node = schema(kind)
    parts = {"spec": node["properties"]["spec"]}

    @examples(15, many=40)
    @given(body=objects({"properties": parts, "required": ["spec"]}))
    def holds(body: dict[str, Any]) -> None:
        whole = {"kind": kind.__name__, "metadata": {"name": "a", "labels": {"x": "y"}}, **body}
        broken = {*refusals(node, with_defaults(node, copy.deepcopy(whole)))}
        if broken & READ:
            with pytest.raises(ValidationError, match="Value error"):
                kind.model_validate_json(json.dumps(whole), strict=True)
            return
        model = kind.model_validate_json(json.dumps(whole), strict=True)
        text = model.model_dump_json(by_alias=True, exclude_none=True)
        again = kind.model_validate_json(text, strict=True)
        written = json.loads(text)
        assert again == model
        assert again.model_dump_json(by_alias=True, exclude_none=True) == text
        assert written["metadata"] == whole["metadata"]
        assert shape_faults(node, written) == []
        assert not [*list_faults(node, written), *unknown_fields(node, written)]

    holds()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fields_of_a_newer_version_do_not_disturb(kind: type[Resource]) -> None:
    spec = next(golden.body["spec"] for golden in goldens().values() if fits(golden, kind))
    later = {**spec, "inventedLater": {"deep": [1]}}
    body = {"metadata": {"name": "a"}, "spec": later, "alsoLater": True}
    written = kind.model_validate(body).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert spec.keys() <= written["spec"].keys()
    if kind is GPUNode:  # its spec is read by a record of its own
        assert GPU_NODE_SPEC.read(later) == GPU_NODE_SPEC.read(spec)
    else:
        assert not [*unknown_fields(schema(kind), written)]


def fits(golden: Golden, kind: type[Resource]) -> bool:
    return golden.valid and golden.kind == kind.__name__
