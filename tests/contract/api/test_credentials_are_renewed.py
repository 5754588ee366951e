# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens that rotate, plugins that print them, and credentials that are no use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import certifi
import orjson
import pytest

from fakes import writer_rig as do
from fakes.apiserver import FakeApiServer
from fakes.apiserver.client import QUICK
from ullage.kube.answers import TokenRenewed
from ullage.kube.client import K8sCluster
from ullage.kube.clock import SystemClock
from ullage.kube.credentials import (
    Credentials,
    CredentialsError,
    find_credentials,
    from_kubeconfig,
    in_cluster,
)
from ullage.kube.errors import Fenced
from ullage.kube.writer.writer import Writer
from ullage.ports import GPU_NODE, ApiError, Forbidden

USER = "system:serviceaccount:ullage-system:ullage-operator"
POD_ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def guarded(api: FakeApiServer) -> FakeApiServer:
    """A server that knows one token."""
    api.access.tokens["first"] = USER
    api.put(GPU_NODE, {"metadata": {"name": "n"}, "spec": {"epoch": 1}})
    return api


def in_pod(api: FakeApiServer, token: Path) -> Credentials:
    found = in_cluster(environment=POD_ENVIRONMENT, token_file=str(token), ca_file=certifi.where())
    configuration = found.configuration
    assert configuration.host == "https://127.0.0.1:443"
    # The fake speaks no TLS, and the loader writes its own address before each request.
    plain = {"host": property(lambda _: api.url, lambda _, value: None)}
    configuration.__class__ = type("Plain", (type(configuration),), plain)
    return found


def kubeconfig(api: FakeApiServer, folder: Path, user: dict[str, object]) -> Path:
    path = folder / "kubeconfig"
    path.write_bytes(
        orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


async def test_a_rotated_service_account_token_is_read_again(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    async with K8sCluster(in_pod(guarded, token), limits=QUICK) as cluster:
        await cluster.get(GPU_NODE, "n")
        guarded.access.rotate("first", "second")
        token.write_text("second")
        await cluster.get(GPU_NODE, "n")
        made = {"metadata": {"name": "m"}, "spec": {"epoch": 1}}
        await cluster.create(GPU_NODE, made)
    assert [seen.status for seen in guarded.requests] == [200, 401, 200, 201]


async def test_a_write_is_not_sent_again_with_the_new_token_by_itself(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    made = {"metadata": {"name": "m"}, "spec": {"epoch": 1}}
    async with K8sCluster(in_pod(guarded, token), limits=QUICK) as cluster:
        await cluster.get(GPU_NODE, "n")
        guarded.access.rotate("first", "second")
        token.write_text("second")
        with pytest.raises(TokenRenewed):
            await cluster.create(GPU_NODE, made)
        assert [seen.status for seen in guarded.requests] == [200, 401]
        await cluster.create(GPU_NODE, made)
    assert [seen.status for seen in guarded.requests] == [200, 401, 201]


async def test_a_leader_that_lost_its_lease_meanwhile_writes_no_more(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    """The answer 401 and the renewal take time: the fence is asked again before the next try."""
    token = tmp_path / "token"
    token.write_text("first")
    held = [True]
    async with K8sCluster(in_pod(guarded, token), limits=QUICK) as cluster:
        await cluster.get(GPU_NODE, "n")
        guarded.access.rotate("first", "second")
        token.write_text("second")
        ended: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        writer = Writer(
            cluster,
            do.Source(),
            fence=lambda: bool(held) and held.pop(),
            on_result=lambda _, error: ended.set_result(error),
            on_lost=lambda: None,
            clock=SystemClock(),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.run())
            writer.submit([do.delete()])
            async with asyncio.timeout(30):
                error = await ended
            await writer.stop()
    assert isinstance(error, Fenced)
    assert [seen.status for seen in guarded.requests] == [200, 401]


async def test_a_token_that_stays_refused_is_forbidden(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("wrong")
    async with K8sCluster(in_pod(guarded, token), limits=QUICK) as cluster:
        with pytest.raises(Forbidden, match="Unauthorized"):
            await cluster.get(GPU_NODE, "n")
    assert len(guarded.requests) == 1


async def test_a_plugin_of_a_kubeconfig_is_asked_again_after_a_401(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    answer = tmp_path / "answer"

    def print_token(token: str) -> None:
        status = {"token": token, "expirationTimestamp": "2999-01-01T00:00:00Z"}
        kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        answer.write_bytes(orjson.dumps({**kind, "status": status}))

    print_token("first")
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(answer)],
    }
    path = kubeconfig(guarded, tmp_path, {"exec": plugin})
    async with K8sCluster(await from_kubeconfig(path), limits=QUICK) as cluster:
        await cluster.get(GPU_NODE, "n")
        guarded.access.rotate("first", "second")
        print_token("second")
        await cluster.get(GPU_NODE, "n")
    assert [seen.status for seen in guarded.requests] == [200, 401, 200]


async def test_a_token_file_of_a_kubeconfig_is_read_again(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    path = kubeconfig(guarded, tmp_path, {"tokenFile": str(token)})
    async with K8sCluster(await find_credentials(str(path)), limits=QUICK) as cluster:
        await cluster.get(GPU_NODE, "n")
        guarded.access.rotate("first", "second")
        token.write_text("second")
        await cluster.get(GPU_NODE, "n")


async def test_the_file_of_a_kubeconfig_is_never_written(
    guarded: FakeApiServer, tmp_path: Path
) -> None:
    path = kubeconfig(guarded, tmp_path, {"token": "first"})
    before = path.read_bytes()
    async with K8sCluster(await from_kubeconfig(path), limits=QUICK) as cluster:
        await cluster.get(GPU_NODE, "n")
    assert path.read_bytes() == before


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="no-such-file"):
        await find_credentials(str(tmp_path / "no-such-file"))


def test_outside_a_pod_the_text_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="ULLAGE_KUBECONFIG"):
        in_cluster(environment={"HOME": "/"}, token_file=str(tmp_path / "token"))
