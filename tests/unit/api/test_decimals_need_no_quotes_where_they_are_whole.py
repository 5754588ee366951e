# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decimal fields of specs take whole numbers with and without quotes, fractions with quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from cel import holds
from docs.generate.crds.definition import KINDS, definition
from ullage.api.numbers import decimal as price
from ullage.api.readers import WireError
from ullage.api.rules import DECIMAL_NOT_NEGATIVE
from ullage.api.scalars import decimal_number
from ullage.api.spec import Spec, SpecReader

FIELDS = {
    "CapacityPool.spec.priceSource.static.pricePerHour",
    "DeviceProfile.spec.pricePerHour",
    "InferenceDeployment.spec.load.requestsPerSecond",
    "InferenceDeployment.spec.load.cv2",
    "InferenceDeployment.spec.slo.percentile",
    "TrainingJob.spec.slo.maxSlowdown",
    "TrainingJob.spec.slo.minThroughput",
    "TrainingJob.spec.cost.maxCost",
    "TrainingJob.spec.cost.budgetPerHour",
    "TrainingJob.spec.cost.delayCostPerHour",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Spec):
    """Any decimal."""

    field: Annotated[float, decimal_number(DECIMAL_NOT_NEGATIVE)]


AGENT_S_OWN = "GPUNode.spec."
"""Written by the operator, as text."""


def decimals(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    pattern = str(schema.get("pattern", "x"))
    taken = [text for text in ("2", "1.5", "4Gi", "abc", "-1", "1e3") if re.search(pattern, text)]
    if taken == ["2", "1.5"]:
        yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from decimals(part, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from decimals(schema[word], f"{path}[]")


def of_specs() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        body: Any = definition(kind)["spec"]
        schema = body["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        found |= dict(decimals(schema, f"{kind.__name__}.spec"))
    return {path: schema for path, schema in found.items() if not path.startswith(AGENT_S_OWN)}


def test_each_decimal_of_a_spec_may_be_a_whole_number() -> None:
    found = of_specs()
    assert set(found) == FIELDS
    for path, schema in found.items():
        assert schema["x-kubernetes-int-or-string"] is True, path
        assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}], path


@pytest.mark.parametrize("path", sorted(FIELDS - {"InferenceDeployment.spec.slo.percentile"}))
def test_the_api_server_checks_whole_numbers_as_it_checks_text(path: str) -> None:
    (rule,) = of_specs()[path]["x-kubernetes-validations"]
    assert "in quotes" in rule["message"]
    for value in (2, "2", "1.5", 999):
        assert holds(rule["rule"], value), value
    for value in (-1, "-1", 10**12, "nan", "inf", "1e3", "1.", ".5", ""):
        assert not holds(rule["rule"], value), value


def decimal(raw: dict[str, Any], field: str) -> Any:
    return None if raw.get(field) is None else SpecReader(Figure, "")(raw).field


@pytest.mark.parametrize("read", [decimal, price])
def test_the_operator_reads_both_and_tells_the_remedy(read: Any) -> None:
    assert read({"field": 2}, "field") == read({"field": "2"}, "field") == 2.0
    assert read({"field": "1.5"}, "field") == 1.5
    assert read({}, "field") is None
    with pytest.raises(
        WireError, match=r'field: write a number with a fraction in quotes, as "1.5"'
    ):
        read({"field": 1.5}, "field")
    for value in (True, -1, 10**12, 10**5000, float("nan"), float("inf"), "nan", "1e3", [], {}):
        with pytest.raises(WireError, match="field: "):
            read({"field": value}, "field")
