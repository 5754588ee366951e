# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lists kept as bytes until the sink reads them."""

from __future__ import annotations

from ullage.kube.reflector import Packed


def pod(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "managedFields": [{"a": 1}]}}


def bare(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}}


def test_what_goes_in_comes_out_without_managed_fields() -> None:
    packed = Packed()
    packed.add([pod("a"), pod("b")])
    packed.add([pod("c")])
    assert len(packed) == 3
    assert list(packed) == [bare("a"), bare("b"), bare("c")]
    assert packed[1] == bare("b")
    assert packed[1:] == [bare("b"), bare("c")]
    assert packed.uids == {"uid-a", "uid-b", "uid-c"}


def test_it_can_be_read_twice() -> None:
    packed = Packed()
    packed.add([pod("a")])
    assert list(packed) == list(packed)


def test_odd_objects_pass() -> None:
    packed = Packed()
    packed.add([{"metadata": None}, {}])
    assert list(packed) == [{"metadata": None}, {}]
