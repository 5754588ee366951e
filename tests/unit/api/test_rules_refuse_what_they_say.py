# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Each rule of the schemas takes the golden manifests that keep it and refuses those that do not.

Rules are evaluated here as far as our own use them, so a broken one is found without a cluster; the
API server has the last word in ``tests/e2e/test_golden_manifests.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cel import holds
from docs.generate.crds.definition import KINDS, schema
from golden_manifests import Golden, goldens

SCHEMAS = {kind.__name__: schema(kind) for kind in KINDS}
CREATED = [golden for golden in goldens().values() if not golden.after]


def case(golden: Golden) -> str:
    return golden.case


def with_defaults(node: dict[str, Any], value: Any) -> Any:
    """The value as the API server stores it."""
    if isinstance(value, dict):
        for name, child in node.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = copy.deepcopy(child["default"])
            if name in value:
                value[name] = with_defaults(child, value[name])
        more = node.get("additionalProperties")
        if isinstance(more, dict):
            return {name: with_defaults(more, one) for name, one in value.items()}
        return value
    if isinstance(value, list) and "items" in node:
        return [with_defaults(node["items"], one) for one in value]
    return value


def refusals(node: dict[str, Any], value: Any) -> Iterator[str]:
    """Messages of the rules that do not hold; those about updates are not asked."""
    for entry in node.get("x-kubernetes-validations", []):
        if "oldSelf" not in entry["rule"] and not holds(entry["rule"], value):
            yield entry["message"]
    if isinstance(value, dict):
        more = node.get("additionalProperties")
        for name, one in value.items():
            child = node.get("properties", {}).get(name, more)
            if isinstance(child, dict):
                yield from refusals(child, one)
    elif isinstance(value, list) and "items" in node:
        for one in value:
            yield from refusals(node["items"], one)


def refused(golden: Golden) -> list[str]:
    node: dict[str, Any] = SCHEMAS[golden.kind]
    return list(refusals(node, with_defaults(node, copy.deepcopy(golden.body))))


@pytest.mark.parametrize("golden", [one for one in CREATED if one.valid], ids=case)
def test_what_is_valid_breaks_no_rule(golden: Golden) -> None:
    assert refused(golden) == []


@pytest.mark.parametrize("golden", [one for one in CREATED if one.by == "cel"], ids=case)
def test_what_a_rule_refuses_breaks_a_rule_that_says_so(golden: Golden) -> None:
    found = refused(golden)
    assert found
    told = [message for message in found if golden.says.split(" (")[0] in message]
    assert told or len(found) == 1, found
