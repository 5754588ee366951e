# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The chart of the definitions holds those of ``crds/``, and an uninstall keeps them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from chart.rendered import CHART, CRD_CHART, ROOT, Helm, Json, annotations
from docs.generate.crds import definition as crd

KEEP = "helm.sh/resource-policy"
NAMES = sorted(f"{kind.info.plural}.ullage.dev" for kind in crd.KINDS)


@pytest.fixture(scope="module")
def definitions(helm: Helm) -> dict[str, Json]:
    bodies = helm.template(chart=CRD_CHART).objects
    return {body["metadata"]["name"]: body for body in bodies}


def test_every_kind_is_there_and_nothing_else(definitions: dict[str, Json]) -> None:
    assert sorted(definitions) == NAMES
    assert {body["kind"] for body in definitions.values()} == {"CustomResourceDefinition"}


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_is_the_one_for_kubectl(definitions: dict[str, Json], name: str) -> None:
    path = ROOT / "crds" / f"ullage.dev_{name.split('.')[0]}.yaml"
    plain = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    chart = {**definitions[name], "metadata": {**definitions[name]["metadata"]}}
    assert chart["metadata"].pop("annotations") == {KEEP: "keep"}
    assert chart == plain


def test_an_uninstall_keeps_every_definition(definitions: dict[str, Json]) -> None:
    assert all(annotations(body)[KEEP] == "keep" for body in definitions.values())


def test_the_main_chart_brings_no_definition(rendered: Any) -> None:
    assert not rendered.all("CustomResourceDefinition")
    assert not (CHART / "crds").exists()
