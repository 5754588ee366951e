# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from ullage.api.reasons import Reason
from ullage_node.devices.emulated_config import (
    ConfigInvalid,
    EmulatedDevice,
    check_cores,
    load_config,
    parse_config,
)
from ullage_node.model.devices import BackendUnavailable

GOOD = {"core": 0, "percent": 100, "memoryMiB": 8192, "model": "emulated"}


def config(*entries: object) -> str:
    return json.dumps({"devices": list(entries)})


def test_devices_are_read_in_the_order_of_the_file() -> None:
    slow = GOOD | {"core": 1, "percent": 50, "model": "emulated-slow"}
    assert parse_config(config(slow, GOOD)) == (
        EmulatedDevice(core=1, percent=50, memory_mib=8192, model="emulated-slow"),
        EmulatedDevice(core=0, percent=100, memory_mib=8192, model="emulated"),
    )


def test_two_devices_may_be_parts_of_one_core() -> None:
    half = GOOD | {"percent": 50}
    assert len(parse_config(config(half, half))) == 2


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("", "is no JSON"),
        ("{'devices': []}", "is no JSON"),
        ("[]", "one object with the field devices"),
        ('{"devices": [], "more": 1}', "one object with the field devices"),
        ('{"devices": []}', "a list of 1 to 64 objects"),
        ('{"devices": {}}', "a list of 1 to 64 objects"),
        (config(*[GOOD] * 65), "a list of 1 to 64 objects"),
        (config(7), r"devices\[0\]: expected an object, got int"),
        (config(GOOD, GOOD | {"cores": 2}), r"devices\[1\]\.cores: unknown field; known are core"),
        (config({k: v for k, v in GOOD.items() if k != "core"}), r"devices\[0\]\.core: expected"),
        (config({k: v for k, v in GOOD.items() if k != "percent"}), r"\.percent: expected a whole"),
        (config({k: v for k, v in GOOD.items() if k != "model"}), r"\.model: expected a string"),
        (config(GOOD | {"core": True}), r"\.core: expected a whole number, got bool"),
        (config(GOOD | {"core": -1}), "-1 is negative"),
        (config(GOOD | {"percent": 0}), "0 is outside 1..100"),
        (config(GOOD | {"percent": 101}), "101 is outside 1..100"),
        (config(GOOD | {"percent": 12.5}), r"\.percent: expected a whole number, got float"),
        (config(GOOD | {"memoryMiB": 0}), "0 is not between"),
        (config(GOOD | {"memoryMiB": "8Gi"}), r"\.memoryMiB: expected a whole number, got str"),
        (config(GOOD | {"model": ""}), "0 characters"),
        (config(GOOD | {"model": "x" * 64}), "64 characters"),
        (config(GOOD | {"model": "Slow Core"}), "no accelerator key; write 'slow-core'"),
        (config(GOOD, GOOD | {"percent": 1}), "devices of core 0 sum to 101 percent; lower them"),
    ],
)
def test_a_wrong_file_is_refused_with_what_would_be_right(raw: str, text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        parse_config(raw)


def test_a_core_that_the_machine_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(ConfigInvalid, match="core 3 is not on this machine, which has 0, 1"):
        check_cores(parse_config(config(GOOD | {"core": 3})), frozenset({0, 1}))


def test_cores_are_unchecked_where_the_machine_does_not_say() -> None:
    check_cores(parse_config(config(GOOD | {"core": 3})), None)


def test_a_missing_file_shows_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r'is missing; write it.*"memoryMiB": 8192') as e:
        load_config(tmp_path / "emulated.json")
    assert e.value.reason is Reason.DEVICE_CONFIG_MISSING


def test_a_file_that_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "folder").mkdir()
    for name in ("binary", "folder"):
        with pytest.raises(BackendUnavailable, match="cannot be read"):
            load_config(tmp_path / name)
