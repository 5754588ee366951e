# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.readers import WireError
from ullage_node.guard.protocol import (
    FreezeTarget,
    GuardAnswer,
    GuardRequest,
    GuardVerb,
    decode,
    decode_request,
    encode,
)
from ullage_node.model.devices import ContainerKey

UID = "0a1b2c3d-0000-4000-8000-00000000000a"
TARGET = FreezeTarget(key=ContainerKey(pod_uid=UID, container="main"), pids=(4711, 4712))
FREEZE = GuardRequest(
    verb=GuardVerb.FREEZE, number=7, targets=(TARGET,), limit_seconds=9.5, why="slow"
)


@pytest.mark.parametrize(
    "request_",
    [
        FREEZE,
        GuardRequest(verb=GuardVerb.THAW, number=8, targets=(TARGET,)),
        GuardRequest(verb=GuardVerb.BEAT, number=9),
    ],
)
def test_what_is_sent_is_what_is_read(request_: GuardRequest) -> None:
    assert decode_request(encode(request_)) == request_


def test_answers_come_back_as_they_were_said() -> None:
    answer = GuardAnswer(number=7, problem="no such container")
    assert decode(GuardAnswer, encode(answer)) == answer


def changed(**change: Any) -> bytes:
    return json.dumps(json.loads(encode(FREEZE)) | change).encode()


def with_target(**change: Any) -> bytes:
    body = json.loads(encode(FREEZE))
    body["containers"][0] |= change
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"freeze everything",
        changed(version=2),
        changed(version=None),
        changed(verb="kill"),
        changed(number=-1),
        changed(number=True),
        changed(limitSeconds=0),
        changed(limitSeconds=10.5),
        changed(limitSeconds=float("nan")),
        changed(limitSeconds="9"),
        changed(containers=[]),
        changed(containers="all"),
        changed(containers=[json.loads(encode(FREEZE))["containers"][0]] * 65),
        with_target(podUID="../../system.slice"),
        with_target(podUID=UID + "/.."),
        with_target(podUID=None),
        with_target(container="../main"),
        with_target(container=""),
        with_target(pids=[1]),
        with_target(pids=["4711"]),
        with_target(pids=[True]),
        with_target(pids=list(range(2, 600))),
    ],
)
def test_what_no_one_may_ask_for_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        decode_request(line)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(line: bytes) -> None:
    for read in (decode_request, partial(decode, GuardAnswer)):
        try:
            read(line)
        except WireError:
            continue


def test_another_version_says_what_to_do() -> None:
    with pytest.raises(WireError, match="same image"):
        decode_request(changed(version=2))
