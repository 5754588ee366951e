# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The fetcher against real servers, files and ConfigMaps: what it gets, and what it never does."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ullage.ports import JsonObject, Kind, NotFound
from ullage.prices import fetcher
from ullage.prices.fetcher import Fetcher, Unreachable, is_link_local, shown
from ullage.prices.identity import AwsKeys, Identities, NoIdentity, signed
from ullage.prices.source import PriceFetch

NOW_S = 1_440_938_160.0
"""2015-08-30T12:36:00Z, the moment of Amazon's published examples."""
KEYS = AwsKeys(key_id="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


class Maps:
    """ConfigMaps by (namespace, name)."""

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        if (namespace, name) != ("house", "gpu-prices"):
            raise NotFound(404, f'configmaps "{name}" not found', "NotFound")
        return {"data": {"prices.json": '{"l4": 0.8}'}}


def a_fetcher(root: Path, environment: Mapping[str, str] | None = None) -> Fetcher:
    return Fetcher(
        Maps(),
        environment=environment or {},
        file_root=str(root),
        timeout_s=2.0,
        now=lambda: NOW_S,
    )


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Fetcher]:
    found = a_fetcher(tmp_path)
    yield found
    await found.close()


BOMB = gzip.compress(b"0" * 50_000_000)


class Shop:
    """A server that answers prices and keeps what it was asked with."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.status = 200
        self.body = b"0.95"
        self.slow = False
        app = web.Application()
        app.router.add_get("/{tail:.*}", self._answer)
        self.server = TestServer(app)

    async def _answer(self, request: web.Request) -> web.Response:
        self.seen.append(request)
        if self.slow:
            await asyncio.sleep(30)
        headers = {"Location": "http://169.254.169.254/"} if self.status == 302 else {}
        if self.body is BOMB:
            headers["Content-Encoding"] = "gzip"
        return web.Response(status=self.status, body=self.body, headers=headers)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    found = Shop()
    await found.server.start_server()
    yield found
    await found.server.close()


def url(shop: Shop, path: str = "/prices?token=secret") -> str:
    return str(shop.server.make_url("/")).rstrip("/") + path


async def test_an_answer_is_got(shop: Shop, ask: Fetcher) -> None:
    assert await ask.get(PriceFetch(url=url(shop))) == b"0.95"
    assert await ask.get(None) == b""


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_other_answers_and_redirections_are_errors_without_the_query(
    shop: Shop, ask: Fetcher, status: int
) -> None:
    shop.status = status
    with pytest.raises(Unreachable, match=f"answers {status}") as caught:
        await ask.get(PriceFetch(url=url(shop)))
    assert "secret" not in str(caught.value)
    assert len(shop.seen) == 1


async def test_a_slow_server_is_given_up(shop: Shop, tmp_path: Path) -> None:
    impatient = Fetcher(
        Maps(), environment={}, file_root=str(tmp_path), timeout_s=0.2, now=lambda: NOW_S
    )
    shop.slow = True
    with pytest.raises(Unreachable, match="did not answer within") as caught:
        await impatient.get(PriceFetch(url=url(shop)))
    assert "secret" not in str(caught.value)
    await impatient.close()


async def test_a_closed_port_is_an_error_without_the_query(ask: Fetcher) -> None:
    with pytest.raises(Unreachable) as caught:
        await ask.get(PriceFetch(url="http://127.0.0.1:9/x?token=secret"))
    assert "secret" not in str(caught.value)


async def test_an_answer_too_large_is_refused(
    shop: Shop, ask: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "LARGEST_BYTES", 1000)
    shop.body = b"x" * 5000
    with pytest.raises(Unreachable, match="is larger than"):
        await ask.get(PriceFetch(url=url(shop)))


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"])
async def test_metadata_services_are_never_asked_for_prices(ask: Fetcher, host: str) -> None:
    with pytest.raises(Unreachable, match="link-local"):
        await ask.get(PriceFetch(url=f"http://{host}/latest/meta-data/"))


async def test_a_name_that_leads_to_a_metadata_service_is_refused(
    ask: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> object:
        return [{"hostname": host, "host": "169.254.169.254", "port": port}]

    monkeypatch.setattr("aiohttp.DefaultResolver.resolve", resolve)
    with pytest.raises(Unreachable):
        await ask.get(PriceFetch(url="http://prices.example.com/"))


def test_link_local_addresses_are_told_from_others() -> None:
    assert not any(map(is_link_local, ["127.0.0.1", "10.0.0.1", "prices.example.com", "::1"]))
    assert shown("https://me.example.com:8443/a/b?c=d#e") == "https://me.example.com:8443/a/b"


async def test_files_are_read_below_one_folder_only(tmp_path: Path) -> None:
    root = tmp_path / "prices"
    root.mkdir()
    (root / "spot.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "secret")
    ask = a_fetcher(root)
    assert await ask.get(PriceFetch(url=str(root / "spot.json"))) == b'{"a": 1}'
    for path in ("../secret", "link"):
        with pytest.raises(Unreachable, match="leads out of the folder"):
            await ask.get(PriceFetch(url=str(root / path)))
    with pytest.raises(Unreachable, match="mount it"):
        await ask.get(PriceFetch(url=str(root / "missing")))


async def test_config_maps_are_read(ask: Fetcher) -> None:
    assert await ask.get(PriceFetch(url="configmap:house/gpu-prices/prices.json")) == b'{"l4": 0.8}'
    with pytest.raises(Unreachable, match="has no key other"):
        await ask.get(PriceFetch(url="configmap:house/gpu-prices/other"))
    with pytest.raises(Unreachable, match="not found"):
        await ask.get(PriceFetch(url="configmap:house/missing/prices.json"))


def test_signatures_are_those_of_the_published_examples() -> None:
    vanilla = signed("https://example.amazonaws.com/", KEYS, ("service", "us-east-1"), NOW_S)
    assert vanilla["authorization"].endswith(
        "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )
    users = signed(
        "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
        KEYS,
        ("iam", "us-east-1"),
        NOW_S,
        {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
    )
    assert users["authorization"].endswith(
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_a_signature_orders_names_as_they_are_sent() -> None:
    """Made with botocore 1.44.5 from the same names, values, keys and time."""
    query = "Name=b+a&Name-1=%C3%BC&Name=a%2Bb&%C3%BC=1&~=2&Empty="
    found = signed(
        f"https://ec2.eu-central-1.amazonaws.com/?{query}",
        replace(KEYS, session="s/+="),
        ("ec2", "eu-central-1"),
        NOW_S,
    )
    assert found["authorization"].endswith(
        "Signature=bc0128dd08f697e07853db1cf635566eb49d9db8fa1a16493bfa6c5ba4437376"
    )


async def test_requests_are_signed_with_the_pods_own_keys(shop: Shop, tmp_path: Path) -> None:
    ask = a_fetcher(
        tmp_path,
        {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "k",
            "AWS_SESSION_TOKEN": "s",
        },
    )
    await ask.get(PriceFetch(url=url(shop, "/?Action=X"), signed_for=("ec2", "us-east-1")))
    (seen,) = shop.seen
    assert "AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request" in seen.headers["authorization"]
    assert seen.headers["x-amz-security-token"] == "s"
    await ask.close()


async def test_a_pod_without_identity_is_told_what_to_set_up(shop: Shop, ask: Fetcher) -> None:
    with pytest.raises(Unreachable, match="EKS Pod Identity or IRSA"):
        await ask.get(PriceFetch(url=url(shop), signed_for=("ec2", "us-east-1")))
    assert not shop.seen


async def test_a_web_identity_becomes_keys_that_are_kept_until_they_end(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("web-token\n", encoding="utf-8")
    asked: list[str] = []

    async def get(url: str, headers: Mapping[str, str]) -> bytes:
        asked.append(url)
        return (
            b'{"AssumeRoleWithWebIdentityResponse":{"AssumeRoleWithWebIdentityResult":'
            b'{"Credentials":{"AccessKeyId":"ASIA","SecretAccessKey":"k","SessionToken":"t",'
            b'"Expiration":1440941760.0}}}}'
        )

    who = Identities(
        get,
        {"AWS_ROLE_ARN": "arn:aws:iam::1:role/prices", "AWS_WEB_IDENTITY_TOKEN_FILE": str(token)},
    )
    first = await who.aws("us-east-1", NOW_S)
    assert await who.aws("us-east-1", NOW_S + 60) is first
    assert (first.key_id, first.session, len(asked)) == ("ASIA", "t", 1)
    assert "WebIdentityToken=web-token" in asked[0]
    await who.aws("us-east-1", NOW_S + 3500)
    assert len(asked) == 2
    assert "k" not in repr(first).replace("Keys", "")


async def test_googles_token_is_asked_of_the_metadata_service_and_kept() -> None:
    asked: list[Mapping[str, str]] = []

    async def get(url: str, headers: Mapping[str, str]) -> bytes:
        asked.append(headers)
        return b'{"access_token": "t", "expires_in": 3600}'

    who = Identities(get, {})
    assert await who.google(NOW_S) == "t"
    assert await who.google(NOW_S + 60) == "t"
    assert asked == [{"Metadata-Flavor": "Google"}]

    async def broken(url: str, headers: Mapping[str, str]) -> bytes:
        return b'{"error": "secret"}'

    with pytest.raises(NoIdentity) as caught:
        await Identities(broken, {}).google(NOW_S)
    assert "secret" not in str(caught.value)


async def test_a_compressed_answer_is_not_blown_up(ask: Fetcher, shop: Shop) -> None:
    shop.body = BOMB
    assert len(await ask.get(PriceFetch(url=url(shop)))) == len(BOMB)
    assert shop.seen[0].headers["Accept-Encoding"] == "identity"
