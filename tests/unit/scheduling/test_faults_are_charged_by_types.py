# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An exception is charged by the records that failing code held, not by names of variables."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import make_dataclass

import pytest

from builders import a_gpu_node, a_job, a_pod, a_snapshot
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.faults import AtFault, Blames, faults_of

JOB, OTHER = a_job("mine").build(), a_job("other").build()
POD = a_pod("mine-0", owner=JOB)
SNAPSHOT = a_snapshot(JOB, OTHER, POD, a_gpu_node("node-1"))
SOURCE = """
def outer(view, placement):
    total = 0
    for step in range(3):
        total += inner(placement, step)

def inner(placement, step):
    result = 1 / (step - step)
    return result
"""


class _Renamed(ast.NodeTransformer):
    """Every variable has another name."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id not in ("range", "outer", "inner"):
            node.id = f"renamed_{node.id}"
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = f"renamed_{node.arg}"
        return node


def subjects(program: ast.Module, value: object) -> list[tuple[str, str]]:
    names: dict[str, Callable[[Snapshot, object], None]] = {}
    exec(compile(ast.fix_missing_locations(program), "<program>", "exec"), names)
    with pytest.raises(ZeroDivisionError) as raised:
        names["outer"](SNAPSHOT, value)
    return [fault.subject for fault in faults_of(raised.value, SNAPSHOT)]


def _about(**parts: object) -> object:
    return make_dataclass("About", parts)(**parts)


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize(
    ("value", "subject"),
    [
        (JOB, ("workloads", JOB.ref.uid)),
        (JOB.ref.uid, ("workloads", JOB.ref.uid)),
        (POD, ("workloads", JOB.ref.uid)),
        (_about(service=JOB), ("workloads", JOB.ref.uid)),
        (_about(anything=JOB, else_=POD), ("workloads", JOB.ref.uid)),
        (_about(deep=_about(deeper=POD)), ("workloads", JOB.ref.uid)),
        (SNAPSHOT.gpu_nodes["node-1"], ("gpu_nodes", "node-1")),
    ],
)
def test_names_do_not_count(value: object, subject: tuple[str, str], renamed: bool) -> None:
    program = ast.parse(SOURCE)
    assert subjects(_Renamed().visit(program) if renamed else program, value) == [subject]


@pytest.mark.parametrize("value", [_about(victim=JOB, preemptor=OTHER), SNAPSHOT, 7, "unknown"])
def test_what_is_about_no_single_object_is_charged_to_none(value: object) -> None:
    assert subjects(ast.parse(SOURCE), value) == []


def test_a_loop_charges_the_workload_that_it_names() -> None:
    blames = Blames(SNAPSHOT)
    for workload in (JOB, OTHER):
        with blames.of(workload.ref):
            raise ValueError("its data")
    with pytest.raises(AtFault) as raised:
        blames.settle()
    assert {fault.key for fault in raised.value.faults} == {JOB.ref.uid, OTHER.ref.uid}
