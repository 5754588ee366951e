# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m ullage.app.replay FILE``: repeats a leader's decision from its snapshot.

A snapshot is JSON, so that an untrusted one can be read without executing anything. The value read
back equals the written one, hence the same plan, byte for byte.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Final, Union, get_args, get_origin, get_type_hints

import numpy as np
import orjson

from ullage.api.schedulingpolicy import RiskSettings
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import DecideSettings

VERSION: Final = 1
Inputs = tuple[Snapshot, float, DecideSettings]
Read = Callable[[object], object]


class UnreadableSnapshot(ValueError):
    """The file is no snapshot of this version; the text names the place."""


def to_json(inputs: Inputs) -> bytes:
    """A snapshot, the moment and the settings of its decision."""
    return b"".join(parts(inputs))


def parts(inputs: Inputs) -> Iterator[bytes]:
    """The JSON of :func:`to_json` in pieces, a record each: large snapshots block nothing."""
    snapshot, now, settings = inputs
    head = {"version": VERSION, "now": now, "settings": _plain(settings)}
    yield orjson.dumps(head)[:-1] + b',"snapshot":{'
    for at, member in enumerate(fields(snapshot)):
        yield (b"," if at else b"") + orjson.dumps(member.name) + b":"
        value = getattr(snapshot, member.name)
        if not isinstance(value, Mapping):
            yield orjson.dumps(_plain(value))
            continue
        before = b"["
        for key, item in value.items():
            yield before + orjson.dumps([_plain(key), _plain(item)])
            before = b","
        yield b"]" if value else b"[]"
    yield b"}}"


def from_json(data: bytes) -> Inputs:
    """Inputs from the output of :func:`to_json`.

    Raises:
        UnreadableSnapshot: it is anything else.
    """
    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableSnapshot(f"no JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("version") != VERSION:
        raise UnreadableSnapshot(f"no snapshot of version {VERSION}; take the operator's release")
    try:
        snapshot = _read(Snapshot, raw["snapshot"])
        now = _read(float, raw["now"])
        settings = _read(DecideSettings, raw["settings"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise UnreadableSnapshot(f"{type(error).__name__}: {error}") from error
    if not (
        isinstance(snapshot, Snapshot)
        and isinstance(now, float)
        and isinstance(settings, DecideSettings)
    ):
        raise UnreadableSnapshot("a part is missing")
    return snapshot, now, settings


def main(arguments: list[str] | None = None) -> int:
    """Print the actions of the decision; the exit status is 1 for an unreadable file."""
    parser = argparse.ArgumentParser(prog="python -m ullage.app.replay", description=__doc__)
    parser.add_argument("file", type=Path, help="what /debug/snapshot gave")
    options = parser.parse_args(arguments)
    try:
        snapshot, now, settings = from_json(options.file.read_bytes())
    except (OSError, UnreadableSnapshot) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1
    plan = decide(snapshot, now, settings)
    actions = diff(plan, snapshot)
    print(f"inputs {plan.inputs_hash} epoch {plan.epoch} at {now}")
    for action in actions:
        print(f"{type(action).__name__}: {action.reason}: {action.text}")
    for fault in plan.faults:
        print(f"set aside: {fault.table} {fault.key}: {fault.text}")
    print(dict(Counter(type(action).__name__ for action in actions)))
    return 0


def _plain(value: object) -> object:
    """A value as JSON; keys that are no texts make a list of pairs."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(float(value))
    if value is None or isinstance(value, (str, int)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, frozenset):
        return sorted((_plain(item) for item in value), key=repr)
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _read(kind: object, raw: object) -> object:
    """A value of a type from JSON; types outside of ours are refused."""
    return _reader(kind)(raw)


@cache  # bounded by the types that a snapshot holds
def _reader(kind: object) -> Read:
    """Reader of a type's values; a snapshot holds few types and very many values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is frozenset:
        read = _reader(arguments[0])
        return lambda raw: frozenset(read(item) for item in _list(raw))
    if origin is np.ndarray:
        return _array
    if isinstance(origin, type) and issubclass(origin, Mapping):
        keys, values = _reader(arguments[0]), _reader(arguments[1])
        return lambda raw: {keys(key): values(value) for key, value in map(_list, _list(raw))}
    if not isinstance(kind, type):
        raise TypeError(f"{kind} is no type that a snapshot holds")
    if issubclass(kind, Enum):
        return kind
    return _record(kind) if is_dataclass(kind) else partial(_scalar, kind)


def _union(kinds: tuple[object, ...]) -> Read:
    (inner,) = (kind for kind in kinds if kind is not NoneType)
    read, optional = _reader(inner), NoneType in kinds
    return lambda raw: None if raw is None and optional else read(raw)


def _tuple(arguments: tuple[object, ...]) -> Read:
    if arguments[-1] is Ellipsis:
        each = _reader(arguments[0])
        return lambda raw: tuple([each(item) for item in _list(raw)])
    reads = [_reader(argument) for argument in arguments]
    return lambda raw: tuple([read(item) for read, item in zip(reads, _list(raw), strict=True)])


def _record(kind: type) -> Read:
    readers: dict[str, Read] = {}  # made with the first record: a type may hold itself

    def read(raw: object) -> object:
        if not isinstance(raw, dict):
            raise TypeError(f"{kind.__name__}: an object is needed")
        if kind is RiskSettings and "learned" in raw:  # from before predictors had names
            word = "Learned" if raw["learned"] else "UtilisationSum"
            raw = {name: item for name, item in raw.items() if name != "learned"}
            raw["predictor"] = word
        if not readers:
            hints = get_type_hints(kind)
            readers.update({field.name: _reader(hints[field.name]) for field in fields(kind)})
        return kind(**{name: readers[name](item) for name, item in raw.items()})

    return read


def _scalar(kind: type, raw: object) -> object:
    if kind is float and isinstance(raw, (int, float, str)):
        return float(raw)
    if kind in (str, int, bool) and type(raw) is kind:
        return raw
    raise TypeError(f"{kind.__name__} is needed, not {type(raw).__name__}")


def _list(raw: object) -> list[object]:
    if not isinstance(raw, list):
        raise TypeError(f"a list is needed, not {type(raw).__name__}")
    return raw


def _array(raw: object) -> object:
    if not isinstance(raw, dict):
        raise TypeError("an array is needed")
    if raw["dtype"] not in ("<f4", "<f8"):
        raise ValueError(f"an array of {raw['dtype']} is none of ours")
    data = base64.b64decode(str(raw["data"]), validate=True)
    return np.frombuffer(data, dtype=str(raw["dtype"])).reshape([int(n) for n in raw["shape"]])


if __name__ == "__main__":
    sys.exit(main())
