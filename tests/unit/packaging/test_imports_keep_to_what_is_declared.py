# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the rules of import-linter cannot say: positive lists, and whole extras."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import grimp
import pytest

from unit.packaging.repository import PACKAGES, modules

BROUGHT_BY_ANOTHER = {"multidict", "yarl", "pydantic_core"}
"""Parts of the interfaces of aiohttp and pydantic."""
PURE = {"numpy", "scipy", "highspy", "msgspec"}
CONTRACT = {
    "ullage.api.checks",
    "ullage.api.captures",
    "ullage.api.codec",
    "ullage.api.dataio",
    "ullage.api.devices",
    "ullage.api.environment",
    "ullage.api.faults",
    "ullage.api.interruptions",
    "ullage.api.labels",
    "ullage.api.lanes",
    "ullage.api.loads",
    "ullage.api.nodespec",
    "ullage.api.numbers",
    "ullage.api.observations",
    "ullage.api.rank_traces",
    "ullage.api.readers",
    "ullage.api.reasons",
    "ullage.api.rebalancing",
    "ullage.api.slices",
    "ullage.api.steps",
    "ullage.api.usage",
    "ullage.api.times",
    "ullage.api.traces",
    "ullage.api.wire_fields",
    "ullage.api.words",
    "ullage.api.xids",
}
MODEL_FREE = CONTRACT | {
    "ullage.api",
    "ullage.api.adoption",
    "ullage.api.template_bounds",
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


def _inside(graph: grimp.ImportGraph, *packages: str) -> set[str]:
    return {name for top in packages for name in graph.find_descendants(top) | {top}}


def _imported(graph: grimp.ImportGraph, importers: Iterable[str]) -> set[str]:
    return {name for item in importers for name in graph.find_modules_directly_imported_by(item)}


def _foreign(names: Iterable[str]) -> set[str]:
    """Names that are neither ours nor the standard library's."""
    return {
        name
        for name in names
        if not name.startswith("ullage") and name not in sys.stdlib_module_names
    }


def _ours(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("ullage")}


def test_engines_know_numbers_and_the_contract_only(graph: grimp.ImportGraph) -> None:
    own = _inside(graph, "ullage.engines")
    imported = _imported(graph, own)
    assert len(own) > 2
    assert _foreign(imported) <= PURE
    assert _ours(imported) - own <= CONTRACT


def test_what_decides_knows_numbers_only(graph: grimp.ImportGraph) -> None:
    own = _inside(graph, "ullage.scheduling", "ullage.cluster", "ullage.ports")
    assert _foreign(_imported(graph, own)) <= PURE


def test_the_contract_knows_the_standard_library_only(graph: grimp.ImportGraph) -> None:
    imported = _imported(graph, CONTRACT)
    assert _foreign(imported) == set()
    assert _ours(imported) <= CONTRACT


def test_the_runtime_knows_the_contract_only(graph: grimp.ImportGraph) -> None:
    apart = ("ullage_run.serving", "ullage_run.binary_tensors")
    own = _inside(graph, "ullage_run") - _inside(graph, *apart)
    imported = _imported(graph, own)
    assert _foreign(imported) == set()
    assert _ours(imported) - own <= {
        "ullage.api.captures",
        "ullage.api.environment",
        "ullage.api.lanes",
        "ullage.api.readers",
        "ullage.api.rebalancing",
        "ullage.api.steps",
    }


def test_the_lead_takes_one_engine_and_the_runtime(graph: grimp.ImportGraph) -> None:
    own = _inside(graph, "ullage_coordinator")
    imported = _imported(graph, own)
    assert _foreign(imported) == set()
    taken = {name for name in _ours(imported) - own if not name.startswith("ullage_run")}
    assert taken <= _inside(graph, "ullage.engines.tiers")


def test_the_router_takes_one_engine_and_libraries_of_its_own(graph: grimp.ImportGraph) -> None:
    own = _inside(graph, "ullage_router")
    imported = _imported(graph, own)
    assert _foreign(imported) - BROUGHT_BY_ANOTHER <= modules("router")
    taken = {name for name in _ours(imported) - own if not name.startswith("ullage_run.")}
    assert taken <= _inside(graph, "ullage.engines.batching") | {"ullage.process.build_metrics"}


def test_a_model_server_takes_the_runtime_and_libraries_of_its_own(
    graph: grimp.ImportGraph,
) -> None:
    imported = _imported(graph, _inside(graph, "ullage_run.serving"))
    assert _foreign(imported) == modules("serve")
    own = ("requests", "tensors", "binary_tensors", "times")
    assert _ours(imported) == {f"ullage_run.{name}" for name in own}


def test_the_agent_takes_the_contract_and_engines_from_us(graph: grimp.ImportGraph) -> None:
    own = _inside(graph, "ullage_node")
    taken = _ours(_imported(graph, own)) - own
    assert "ullage.api.slices" in taken
    shared = CONTRACT | _inside(graph, "ullage.process")
    assert {name for name in taken if not name.startswith("ullage.engines.")} <= shared


def test_models_are_told_from_the_rest_of_the_api(graph: grimp.ImportGraph) -> None:
    """What engines and node agent take of ``api`` needs no model."""
    for name in _inside(graph, "ullage.api") & MODEL_FREE:
        assert not graph.find_upstream_modules(name) & {"pydantic"}
    free = {
        name
        for name in _inside(graph, "ullage.engines", "ullage_node")
        for name in graph.find_modules_directly_imported_by(name)
        if name.startswith("ullage.api")
    }
    assert free <= MODEL_FREE


@pytest.mark.parametrize(
    ("entry", "extra"),
    [
        ("ullage.app.main", "operator"),
        ("ullage_node.main", "node"),
        ("ullage.webhook.main", "operator"),
        ("ullage_katib.__main__", "katib"),
        ("ullage.cli.main", "cli"),
        ("ullage_router.__main__", "router"),
    ],
)
def test_an_extra_brings_all_that_its_command_imports(
    graph: grimp.ImportGraph, entry: str, extra: str
) -> None:
    reached = graph.find_upstream_modules(entry)
    assert len(_ours(reached)) > 10
    assert _foreign(reached) - BROUGHT_BY_ANOTHER <= modules(extra)
