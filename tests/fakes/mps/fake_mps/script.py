# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a test tells the fake to do: hardware, delays, faults and crashes, from one JSON file.

Every key has a default that behaves well, an unknown key or a wrong type is an error: a script
with a spelling mistake must not become a test that tests nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fake_mps.hardware import Gpu

SCRIPT_VARIABLE = "FAKE_MPS_SCRIPT"
ACTIONS = ("fault", "crash_server", "crash_control", "hang_server", "hang_control", "recover")
CLIENT_ROWS = ("documented", "captured")
KILL_DAMAGE = ("none", "fault", "hang", "exit", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How one server start goes; ``exit_status`` set means that it dies instead of serving."""

    init_s: float = 0.0
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """How one terminate_client goes; ``hang`` never answers, ``linger_s`` keeps it listed."""

    seconds: float = 0.0
    result: str = "0"
    hang: bool = False
    linger_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRule:
    """What happens to commands that match a shell pattern, ``times`` times or for ever (-1)."""

    match: str
    delay_s: float = 0.0
    reply: str | None = None
    hang: bool = False
    crash: bool = False
    times: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An action (see ACTIONS) so many seconds after the daemon's start."""

    at_s: float
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The whole script; lists of starts and terminations are used up in order, the last repeats.

    Attributes:
        gpus: the machine's GPUs; empty means that any UUID is an H100.
        cuda_version: decides the context limit (60 from 13.1) and whether ``-S`` is known.
        protocols: protocols that this binary speaks.
        wedge_uid: when set, the first client of another UID is never served and neither is
            anyone after it.
        killed_client: damage when a client with outstanding work vanishes.
        recover_s: seconds from the last client of a faulted server to ACTIVE.
        v3_client_rows: csv of ``client list`` as NVIDIA documents it, or as captured on 615.71.
        seed: of the only random choice, ``killed_client: random``.
    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str = "580.159.04"
    cuda_version: str = "13.0"
    protocols: tuple[int, ...] = (2,)
    starts: tuple[Start, ...] = (Start(),)
    terminations: tuple[Termination, ...] = (Termination(),)
    commands: tuple[CommandRule, ...] = ()
    events: tuple[Event, ...] = ()
    recover_s: float = 0.0
    killed_client: str = "fault"
    wedge_uid: int | None = None
    v3_client_rows: str = "documented"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.killed_client not in KILL_DAMAGE:
            raise ValueError(f"killed_client {self.killed_client!r} is not one of {KILL_DAMAGE}")
        if self.v3_client_rows not in CLIENT_ROWS:
            raise ValueError(f"v3_client_rows {self.v3_client_rows!r} is not one of {CLIENT_ROWS}")
        for event in self.events:
            if event.do not in ACTIONS:
                raise ValueError(f"events: {event.do!r} is not one of {ACTIONS}")
        if not self.starts or not self.terminations:
            raise ValueError("starts and terminations need at least one entry")

    @property
    def cuda(self) -> tuple[int, int]:
        """The CUDA version as numbers."""
        major, _, minor = self.cuda_version.partition(".")
        return int(major), int(minor)

    @property
    def binary_version(self) -> int:
        """What ``-v`` prints: 13010 for CUDA 13.1."""
        return self.cuda[0] * 1000 + self.cuda[1] * 10

    @property
    def static_partitioning(self) -> bool:
        """Whether ``-S`` exists."""
        return self.cuda >= (13, 1)

    def context_limit(self, gpu: Gpu) -> int:
        """Contexts that one device takes."""
        if gpu.pre_volta:
            return 16
        return 60 if self.cuda >= (13, 1) else 48


_PARTS: Mapping[str, type] = {
    "gpus": Gpu,
    "starts": Start,
    "terminations": Termination,
    "commands": CommandRule,
    "events": Event,
}


def read_script(raw: Mapping[str, object]) -> Script:
    """Build a script from parsed JSON.

    Raises:
        ValueError: an unknown key, a wrong type or a word that is not one of the known.
    """
    values: dict[str, object] = {}
    for key, value in raw.items():
        if key in _PARTS:
            if not isinstance(value, list):
                raise ValueError(f"{key}: a list is needed")
            values[key] = tuple(_build(_PARTS[key], part, key) for part in value)
        elif key == "protocols":
            if not isinstance(value, list):
                raise ValueError(f"{key}: a list is needed")
            values[key] = tuple(value)
        else:
            values[key] = value
    built = _build(Script, values, "script")
    assert isinstance(built, Script)
    return built


def load_script(path: str | Path | None) -> Script:
    """Read the file; without one, the script that behaves well.

    Raises:
        ValueError: not JSON, or not a script.
        OSError: the file cannot be read.
    """
    if not path:
        return Script()
    raw = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: a JSON object is needed")
    return read_script(raw)


def _build(kind: type, raw: object, where: str) -> object:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where}: an object is needed, not {raw!r}")
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    for key, value in raw.items():
        if key not in fields:
            raise ValueError(f"{where}: unknown key {key!r}, known are {sorted(fields)}")
        if not _fits(value, fields[key]):
            raise ValueError(f"{where}.{key}: {value!r} is not of type {fields[key]}")
    try:
        return kind(**raw)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _fits(value: object, annotation: str) -> bool:
    if annotation.startswith("tuple"):
        return isinstance(value, tuple)
    words = annotation.split(" | ")
    if value is None:
        return "None" in words
    if isinstance(value, bool):
        return "bool" in words
    if isinstance(value, int):
        return "int" in words or "float" in words
    if isinstance(value, float):
        return "float" in words
    return isinstance(value, str) and "str" in words
