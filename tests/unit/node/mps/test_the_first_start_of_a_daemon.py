# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a daemon is started with, how it names its device, where its words are read.

The fakes refuse what no documentation promises: every answer here is one of several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.mps import Client, ClientState, Script
from fakes.mps_node import A, MpsNode, on_node, refuse_many_users
from fakes.mps_programs import MEMORY, PIPE
from fakes.virtual_time import run_virtual
from ullage_node.mps.daemon import last_words
from ullage_node.mps.records import MpsServer


def of(node: MpsNode, uid: int, pid: int) -> Client:
    """A client of this user."""
    env = {PIPE: str(node.root / "0" / "pipe"), MEMORY: "0=1024M"}
    client = node.programs.connect(env, pid, uid)
    assert client is not None
    return client


def test_users_of_every_uid_are_clients_of_one_server() -> None:
    async def live(node: MpsNode) -> None:
        clients = [of(node, uid, 9000 + uid) for uid in (0, 1000, 65534)]
        assert {client.state for client in clients} == {ClientState.ATTACHED}
        server = await node.look(fresh=True)
        assert server.multi_user
        assert server.clients == (9000, 10000, 74534)

    on_node(live)


def test_a_daemon_that_refuses_many_users_serves_one_and_says_so() -> None:
    async def live(node: MpsNode) -> None:
        server = await node.look()
        assert server.ready
        assert not server.multi_user
        assert of(node, 0, 9001).state is ClientState.ATTACHED
        assert of(node, 1000, 9002).state is not ClientState.ATTACHED

    on_node(live, harm=refuse_many_users)


def test_the_last_words_of_a_daemon_explain_its_end() -> None:
    node = MpsNode()
    node.programs.refused = "-f"

    async def wait() -> MpsServer:
        for _ in range(8):
            server = await node.look()
            if "Unrecognized" in server.why:
                return server
            await asyncio.sleep(1)
        raise AssertionError(server.why)

    async def live() -> None:
        try:
            assert "Unrecognized option -f" in (await wait()).why
        finally:
            await node.supervisor.retire()

    run_virtual(live())


def print_the_log(node: MpsNode) -> None:
    node.programs.prints = True


@pytest.mark.parametrize(
    ("harm", "log"), [(None, "control.log"), (print_the_log, "daemon.log")], ids=["file", "output"]
)
def test_a_hanging_queue_is_found_wherever_the_daemon_writes(
    harm: Callable[[MpsNode], None] | None, log: str
) -> None:
    async def live(node: MpsNode) -> None:
        assert (await node.look()).log == log
        of(node, 1000, 9001)
        of(node, 0, 9002)
        await node.until(lambda server: server.restarts > 0)

    on_node(live, Script(wedge_uid=1000), harm=harm)


@pytest.mark.parametrize(
    ("deaf", "key"), [((), "0"), (("0",), A), (("0", A), "")], ids=["ordinal", "uuid", "neither"]
)
def test_a_device_is_named_as_the_daemon_repeats_it_its_ordinal_first(
    deaf: tuple[str, ...], key: str
) -> None:
    def harm(node: MpsNode) -> None:
        node.programs.deaf_keys = deaf

    async def live(node: MpsNode) -> None:
        server = await node.look()
        assert server.ready
        assert server.memory_key == key

    on_node(live, harm=harm)


def test_words_that_cannot_be_told_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    assert last_words([log]) == ""
    log.write_bytes(b"first\n\x1b[31mlast\xff words\n\n")
    assert last_words([log]) == "[31mlast\ufffd words"
    log.write_bytes(b"x" * 9000)
    assert len(last_words([log])) == 200
