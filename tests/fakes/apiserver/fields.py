# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Field ownership: who set which field, and what an apply therefore keeps, takes and removes.

The algorithm of structured-merge-diff on flattened objects: a path is a tuple of FieldsV1 steps
(``f:name``, ``k:{"key":1}``, ``v:value``), a set of fields a set of paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from fakes.apiserver.errors import Refusal
from fakes.apiserver.shapes import DEDUCED, Shape

Path = tuple[str, ...]
MEMBER = object()
"""Value of a list item's own path: it is there, whatever its content."""

_UNOWNED = frozenset(
    [("f:apiVersion",), ("f:kind",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
            "selfLink",
        )
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who writes: one managedFields entry's identity."""

    manager: str
    operation: str
    subresource: str
    api_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one owner owns."""

    owner: Owner
    paths: frozenset[Path]
    time: str


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def item_key(item: Any, shape: Shape) -> str:
    """Path step of a list-map item; whether a missing key is allowed, the schema says."""
    given = item if isinstance(item, dict) else {}
    keys = {key: given.get(key, shape.key_defaults.get(key)) for key in shape.keys}
    return "k:" + _json(keys)


def flatten(value: Any, shape: Shape) -> dict[Path, Any]:
    """Every owned path of a value, with what stands there."""
    out: dict[Path, Any] = {}
    _flatten(value, shape, (), out)
    return {at: leaf for at, leaf in out.items() if at not in _UNOWNED}


def _flatten(value: Any, shape: Shape, path: Path, out: dict[Path, Any]) -> None:
    if isinstance(value, dict) and not shape.atomic:
        if not value and path:
            out[path] = {}
        for name, child in value.items():
            if name != "managedFields" or path != ("f:metadata",):
                _flatten(child, shape.child(name), (*path, f"f:{name}"), out)
    elif isinstance(value, list) and shape.keys:
        for item in value:
            step = (*path, item_key(item, shape))
            if step in out:
                where = "".join(f".{part[2:]}" for part in path)
                raise Refusal(
                    500,
                    "failed to create typed patch object: "
                    f"{where}: duplicate entries for key {step[-1][2:]}",
                )
            out[step] = MEMBER
            _flatten(item, shape.item or DEDUCED, step, out)
    elif isinstance(value, list) and shape.is_set:
        out.update({(*path, "v:" + _json(item)): item for item in value})
    else:
        out[path] = value


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """Live with the applied fields laid over it."""
    if isinstance(live, dict) and isinstance(config, dict) and not shape.atomic:
        out = dict(live)
        for name, value in config.items():
            out[name] = merge(live.get(name), value, shape.child(name))
        return out
    if isinstance(live, list) and isinstance(config, list):
        if shape.is_set:
            return [*live, *(item for item in config if item not in live)]
        if shape.keys:
            items = {item_key(item, shape): item for item in live}
            for item in config:
                key = item_key(item, shape)
                items[key] = merge(items.get(key), item, shape.item or Shape())
            return list(items.values())
    return config


def remove(value: Any, shape: Shape, gone: frozenset[Path], path: Path = ()) -> Any:
    """The value without the given paths; what becomes empty by that goes too."""
    if isinstance(value, dict) and not shape.atomic:
        out = {}
        for name, child in value.items():
            step = (*path, f"f:{name}")
            if step in gone:
                continue
            kept = remove(child, shape.child(name), gone, step)
            if kept in ({}, []) and child not in ({}, []):
                continue
            out[name] = kept
        return out
    if isinstance(value, list) and shape.keys:
        steps = [(item, (*path, item_key(item, shape))) for item in value]
        return [
            remove(item, shape.item or Shape(), gone, step)
            for item, step in steps
            if step not in gone
        ]
    if isinstance(value, list) and shape.is_set:
        return [item for item in value if (*path, "v:" + _json(item)) not in gone]
    return value


def differences(
    before: Mapping[Path, Any], after: Mapping[Path, Any]
) -> tuple[frozenset[Path], frozenset[Path]]:
    """Paths (changed or added, removed)."""
    changed = {at for at, leaf in after.items() if at not in before or before[at] != leaf}
    return frozenset(changed), frozenset(before.keys() - after.keys())


def decode(managed: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Read ``metadata.managedFields``."""

    def walk(node: Mapping[str, Any], path: Path) -> Iterable[Path]:
        if not node:
            yield path
        for step, child in node.items():
            if step == ".":
                yield path
            else:
                yield from walk(child, (*path, step))

    return [
        Entry(
            owner=Owner(
                manager=raw["manager"],
                operation=raw["operation"],
                subresource=raw.get("subresource", ""),
                api_version=raw["apiVersion"],
            ),
            paths=frozenset(walk(raw["fieldsV1"], ())),
            time=raw["time"],
        )
        for raw in managed
    ]


def encode(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Write ``metadata.managedFields``."""
    out = []
    for entry in entries:
        tree: dict[str, Any] = {}
        for path in sorted(entry.paths, key=len):
            node = tree
            for step in path:
                node = node.setdefault(step, {})
        for path in entry.paths:
            node = tree
            for step in path:
                node = node[step]
            if node:
                node["."] = {}
        raw: dict[str, Any] = {
            "manager": entry.owner.manager,
            "operation": entry.owner.operation,
            "apiVersion": entry.owner.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        }
        if entry.owner.subresource:
            raw["subresource"] = entry.owner.subresource
        out.append(raw)
    return out


def _with(entries: list[Entry], mine: Entry, paths: frozenset[Path], now: str) -> list[Entry]:
    """The entries with the writer's own, whose time moves only when its fields change."""
    time = mine.time if mine.time and paths == mine.paths else now
    return [e for e in (*entries, replace(mine, paths=paths, time=time)) if e.paths]


def _split(managed: list[Entry], owner: Owner) -> tuple[Entry, list[Entry]]:
    mine = next((e for e in managed if e.owner == owner), None)
    others = [e for e in managed if e.owner != owner]
    return mine or Entry(owner=owner, paths=frozenset(), time=""), others


def _conflict(conflicts: Mapping[Owner, frozenset[Path]]) -> Refusal:
    count = sum(len(paths) for paths in conflicts.values())
    texts = []
    for owner, paths in conflicts.items():
        fields = ", ".join(
            "".join(f".{s[2:]}" if s.startswith("f:") else f"[{s[2:]}]" for s in path)
            for path in sorted(paths)
        )
        texts.append(f'conflict with "{owner.manager}" using {owner.api_version}: {fields}')
    word = "conflict" if count == 1 else "conflicts"
    return Refusal(409, f"Apply failed with {count} {word}: " + "; ".join(texts))


def apply(
    live: dict[str, Any], config: dict[str, Any], *, shape: Shape, owner: Owner, force: bool
) -> tuple[dict[str, Any], frozenset[Path]]:
    """The object after an apply, and the paths the applier now owns.

    ``live`` is {} for a new object. Raises a 409 Refusal for a field that someone else set to
    another value, unless forced, and a 422 one for an object that loses its last field while the
    applier still states it: the real merge makes null of it.
    """
    mine, others = _split(decode(live.get("metadata", {}).get("managedFields", ())), owner)
    wanted = frozenset(flatten(config, shape))
    merged = merge(live, config, shape)
    kept = frozenset().union(*(entry.paths for entry in others), wanted)
    inner = {path[:n] for path in kept for n in range(1, len(path))}
    gone = mine.paths - kept - inner
    result = remove(merged, shape, gone)
    for at in sorted(path for path, leaf in flatten(config, shape).items() if leaf == {}):
        if any(path[: len(at)] == at for path in gone) and not _holds(result, at):
            where = ".".join(step[2:] for step in at)
            raise Refusal(
                422,
                f'{where}: Invalid value: "null": {where} in body must be of type object: "null"',
            )
    changed, _ = differences(flatten(live, shape), flatten(result, shape))
    conflicts = {e.owner: e.paths & changed for e in others if e.paths & changed}
    if conflicts and not force:
        raise _conflict(conflicts)
    return result, wanted


def _holds(value: Any, path: Path) -> bool:
    """True when an object holds something at a path of field names."""
    for step in path:
        value = value.get(step[2:]) if isinstance(value, dict) else None
    return bool(value)


def owned_after(
    live: dict[str, Any],
    result: dict[str, Any],
    *,
    shape: Shape,
    owner: Owner,
    now: str,
    applied: frozenset[Path] | None = None,
) -> list[dict[str, Any]]:
    """``managedFields`` once ``live`` has become ``result`` by this owner's write.

    ``applied`` are the fields of an apply; an update owns what it changed, besides what it had.
    """
    mine, others = _split(decode(live.get("metadata", {}).get("managedFields", ())), owner)
    after = flatten(result, shape)
    changed, removed = differences(flatten(live, shape), after)
    lost = changed | removed
    rest = [replace(e, paths=e.paths - lost) if e.paths & lost else e for e in others]
    if applied is None:
        paths = (mine.paths | changed) - removed
    else:
        paths = frozenset(path for path in applied if path in after)
    return encode(_with(rest, mine, paths, now))
