# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of the code that may only fall, measured in its syntax trees.

``python -m ceilings`` prints today's figure, the ceiling and the goal of each, and writes today's
to ``build/bench/house.json``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench import report

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("operator", "deviceplugin", "runtime")
VAGUE: Final = frozenset({"one", "found"})
QUESTION_WORDS: Final = frozenset(
    {"how", "what", "when", "where", "whether", "which", "who", "why"}
)
DURATION: Final = re.compile(r"^[A-Z].*_(S|MS|NS|H|SECONDS|MINUTES|HOURS|DAYS)$")
TABLE_OF_REASONS: Final = ROOT / "operator/ullage/api/reasons.py"
TIMES: Final = "times"
"""Stem of the modules in which durations have their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A ceiling that is lowered as the figure falls, and where it is to come down to."""

    key: str
    """Of the figure in ``house.json``."""
    ceiling: float
    goal: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A file of the product."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """All of the tree."""

    @classmethod
    def read(cls, path: Path) -> Module:
        """Parse a file."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        return cls(path=path, text=text, tree=tree, nodes=tuple(ast.walk(tree)))


@cache
def modules() -> tuple[Module, ...]:
    """Every file of operator, node agent and runtime."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return tuple(Module.read(file) for file in sorted(files))


def figures() -> Mapping[str, float]:
    """Today's figures of what :func:`modules` gives."""
    imports, code = _imports()
    functions, once = _functions()
    docstrings = [text for module in modules() for text in _docstrings(module)]
    asking = [text for text in docstrings if _first_word(text) in QUESTION_WORDS]
    return {
        "lines": sum(module.text.count("\n") for module in modules()),
        "files": len(modules()),
        "classes that share a name": _shared_names(),
        "bindings of vague names": sum(_vague(module) for module in modules()),
        "docstrings that ask, %": _percent(len(asking), len(docstrings)),
        "durations outside of times": sum(_durations(module) for module in modules()),
        "sets of reasons outside of the table": sum(_reason_sets(module) for module in modules()),
        "private functions named once, %": _percent(once, functions),
        "import lines, %": _percent(imports, code),
        "importers of the widest module": _widest(),
        "declarations of a step row": sum(_step_rows(module) for module in modules()),
        "declarations of a spec": _spec_declarations(),
    }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


def _shared_names() -> int:
    names = Counter(
        node.name for module in modules() for node in module.nodes if isinstance(node, ast.ClassDef)
    )
    return sum(count for count in names.values() if count > 1)


def _vague(module: Module) -> int:
    """Bindings of names that say nothing of what they hold."""
    stored = (
        node.id
        for node in module.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    taken = (node.arg for node in module.nodes if isinstance(node, ast.arg))
    return sum(name in VAGUE for name in (*stored, *taken))


def _docstrings(module: Module) -> Iterator[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in module.nodes:
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def _first_word(text: str) -> str:
    return text.split()[0].strip("(),.:;").lower()


def _durations(module: Module) -> int:
    """Constants of a module that are durations, by their name."""
    if module.path.stem == TIMES:
        return 0
    return sum(
        isinstance(node, ast.AnnAssign | ast.Assign)
        and any(isinstance(name, ast.Name) and DURATION.search(name.id) for name in _targets(node))
        for node in module.tree.body
    )


def _targets(node: ast.AnnAssign | ast.Assign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _reason_sets(module: Module) -> int:
    """Collections of reasons, mappings by them, and patterns that take several alike.

    What only narrows a type (``Literal``) states no property of a reason.
    """
    if module.path == TABLE_OF_REASONS:
        return 0
    types = {id(node.slice) for node in module.nodes if isinstance(node, ast.Subscript)}
    return sum(
        count > 1 and count == sum(map(_is_reason, parts))
        for node in module.nodes
        if id(node) not in types
        for parts in [_parts(node)]
        for count in [len(parts)]
    )


def _parts(node: ast.AST) -> list[ast.expr]:
    """What a collection holds, a mapping goes by or a pattern takes; unpacked parts count not."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return [part for part in parts if not isinstance(part, ast.Starred)]
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
        case ast.MatchOr(patterns=patterns):
            return [part.value for part in patterns if isinstance(part, ast.MatchValue)]
        case _:
            return []


def _is_reason(part: ast.expr) -> bool:
    match part:
        case ast.Attribute(value=ast.Name(id="Reason")):
            return True
        case _:
            return False


def _functions() -> tuple[int, int]:
    """Functions and methods, and the private ones that their file names once more only."""
    count = once = 0
    for module in modules():
        names = [
            node.name
            for node in module.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        used = Counter(
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in module.nodes
            if isinstance(node, ast.Attribute | ast.Name)
        )
        count += len(names)
        once += sum(name.startswith("_") and used[name] == 1 for name in names)
    return count, once


def _imports() -> tuple[int, int]:
    """Lines of imports, and lines of code: no comments, docstrings and blanks."""
    imports = code = 0
    for module in modules():
        kept = {
            number
            for number, line in enumerate(module.text.splitlines(), start=1)
            if line.strip() and not line.strip().startswith("#")
        }
        for node in module.nodes:
            span = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += len(span)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                kept -= set(span)
        code += len(kept)
    return imports, code


def _widest() -> int:
    """Files that import the module that most files import."""
    importers: Counter[str] = Counter()
    for module in modules():
        importers.update(
            {
                node.module
                for node in module.nodes
                if isinstance(node, ast.ImportFrom) and node.module
            }
        )
    ours = {name: count for name, count in importers.items() if name.startswith("ullage")}
    return max(ours.values())


def _step_rows(module: Module) -> int:
    """Classes that declare the time of a step beside its partners."""
    classes = (node for node in module.nodes if isinstance(node, ast.ClassDef))
    names = (
        {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        for node in classes
    )
    return sum(
        "partners" in fields and any(name.startswith("step_") for name in fields)
        for fields in names
    )


def _spec_declarations() -> float:
    """1, and the part of the kinds whose spec has a part that makes the CRD alone.

    Such a part is a pydantic model (``Model``); what reads the field at run time is a second
    declaration. A part that derives from ``Spec`` reads the object itself, and where a field names
    a record (``record``, ``records``) that record makes the CRD.
    """
    named: dict[str, ast.AST] = {}
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                named[node.name] = node
            elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
                names = (target.id for target in _targets(node) if isinstance(target, ast.Name))
                named |= {name: node.value for name in names if name not in named}
    kinds = [node for node in named.values() if "Resource" in _bases(node)]
    twice = sum(_is_declared_twice(kind, named) for kind in kinds)
    return round(1 + twice / max(1, len(kinds)), 2)


def _bases(node: ast.AST | None) -> set[str]:
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return {base.id for base in bases if isinstance(base, ast.Name)}


def _is_declared_twice(kind: ast.AST, named: Mapping[str, ast.AST]) -> bool:
    """True when a part of the kind's spec is a model, however deep it stands."""
    seen: set[str] = set()
    ahead = [_annotations(kind)["spec"]]
    while ahead:
        names = {node.id for node in ast.walk(ahead.pop()) if isinstance(node, ast.Name)} - seen
        seen |= names
        for part in (named[name] for name in names if name in named):
            if {"Model", "OpenModel", "BaseModel"} & _bases(part):
                return True
            ahead += _annotations(part).values() if isinstance(part, ast.ClassDef) else [part]
    return False


def _annotations(node: ast.AST) -> dict[str, ast.expr]:
    fields = node.body if isinstance(node, ast.ClassDef) else []
    return {
        field.target.id: field.annotation
        for field in fields
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


CEILINGS: Final[Mapping[str, Bound]] = {
    "lines": Bound(key="product_lines", ceiling=168_900, goal=126_000),
    "files": Bound(key="product_files", ceiling=1_003, goal=650),
    "classes that share a name": Bound(key="shared_class_names", ceiling=43, goal=40),
    "bindings of vague names": Bound(key="vague_bindings", ceiling=0, goal=0),
    "docstrings that ask, %": Bound(key="asking_docstrings_percent", ceiling=0.2, goal=0),
    "durations outside of times": Bound(key="loose_times", ceiling=18, goal=10),
    "sets of reasons outside of the table": Bound(key="reason_sets", ceiling=0, goal=0),
    "private functions named once, %": Bound(key="once_named_percent", ceiling=26.6, goal=15),
    "import lines, %": Bound(key="import_lines_percent", ceiling=11.5, goal=8.5),
    "importers of the widest module": Bound(key="widest_importers", ceiling=181, goal=120),
    "declarations of a step row": Bound(key="row_declarations", ceiling=3, goal=1),
    "declarations of a spec": Bound(key="spec_declarations", ceiling=1, goal=1),
}


def main() -> None:
    """Print a table and write a file."""
    table = Table("", "today", "ceiling", "goal")
    for name, today in figures().items():
        bound = CEILINGS[name]
        table.add_row(name, f"{today:,g}", f"{bound.ceiling:,g}", f"{bound.goal:,g}")
    Console(highlight=False).print(table)
    report.save("house", {CEILINGS[name].key: today for name, today in figures().items()})


if __name__ == "__main__":
    main()
