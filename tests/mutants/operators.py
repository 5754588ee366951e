# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every small change that a sample may draw: swapped comparisons, arithmetic, results and numbers.

Only bodies of functions are changed: numbers of a module are settings, and no test runs their
lines. Texts, assertions, errors and annotations stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

COMPARED: Final[dict[type[ast.cmpop], ast.cmpop]] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
CALCULATED: Final[dict[type[ast.operator], ast.operator]] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
    ast.Pow: ast.Mult(),
}
NAMED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
"""Functions that are taken for one another; numpy's of these names too."""
UNTOUCHED: Final = (ast.JoinedStr, ast.Raise, ast.Assert, ast.arguments, ast.AnnAssign)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a file: what stands from a place to a place, and what stands there instead."""

    line: int
    begin: int
    end_line: int
    end: int
    before: str
    after: str

    def made(self, text: str) -> str:
        """The file with the change."""
        lines = text.splitlines(keepends=True)
        # positions count bytes of a line
        first, last = lines[self.line - 1].encode(), lines[self.end_line - 1].encode()
        said = first[: self.begin] + self.after.encode() + last[self.end :]
        return "".join((*lines[: self.line - 1], said.decode(), *lines[self.end_line :]))


def changes(text: str) -> list[Change]:
    """Every change of a file, in the order of its lines."""
    found: list[Change] = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                found += _within(statement)
    return sorted(set(found), key=lambda one: (one.line, one.begin, one.after))


def _within(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, UNTOUCHED):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _within(node.value)
        return
    for new in _instead(node):
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        said = ast.unparse(new)
        yield Change(
            line=node.lineno,
            begin=node.col_offset,
            end_line=node.end_lineno,
            end=node.end_col_offset,
            before=ast.unparse(node),
            after=f"({said})" if isinstance(node, ast.expr) else said,
        )
    for child in ast.iter_child_nodes(node):
        yield from _within(child)


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand instead of a node."""
    match node:
        case ast.Compare(ops=[one]):
            yield ast.Compare(node.left, [COMPARED[type(one)]], node.comparators)
        case ast.BinOp() if type(node.op) in CALCULATED and not _is_text(node):
            yield ast.BinOp(node.left, CALCULATED[type(node.op)], node.right)
        case ast.AugAssign() if type(node.op) in CALCULATED and not _is_text(node):
            yield ast.AugAssign(node.target, CALCULATED[type(node.op)], node.value)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Call(func=ast.Name(id=name)) if name in NAMED:
            yield ast.Call(ast.Name(NAMED[name]), node.args, node.keywords)
        case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
            yield ast.Return(ast.Constant(None))


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether texts or lists are joined, which nothing else can be done to."""
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    joined = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)
    return any(
        isinstance(part, joined) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in parts
    )


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value
