# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of a router: what each sets, what stands without it, and what is refused."""

from __future__ import annotations

import pytest

from ullage.engines.batching.chooser import BatchPolicy, BatchRules
from ullage_router.settings import (
    MIB,
    Addresses,
    ClientLimits,
    GenerativeSettings,
    ReplicaAddress,
    RouterSettings,
    addresses_of,
    parser,
    settings_of,
)

LEAST = ("--backend", "http://a:1", "--objective-ms", "50")


def settings(*words: str) -> RouterSettings:
    return settings_of(parser().parse_args([*LEAST, *words]))


def test_without_an_option_the_defaults_hold() -> None:
    assert settings() == RouterSettings(
        backends=(ReplicaAddress(url="http://a:1"),), objective_s=0.05
    )
    assert addresses_of(parser().parse_args(LEAST)) == Addresses(
        http=("0.0.0.0", 8080), metrics=("0.0.0.0", 9464)
    )
    generative = settings("--generative").generative
    assert generative == GenerativeSettings()


def test_every_option_sets_what_it_names() -> None:
    words = """
        --backend http://b:2/,device=gpu-0,share=100 --hold-seconds 7 --policy EDF --sizes 1,3
        --most-rows 9 --fixed-ms 4 --in-flight 2 --deadline-header x-by --app-header x-of
        --pass-header X-Tenant --probe-path /live --body-bytes 1024 --queue 11 --queue-bytes 2048
        --connections 12 --body-seconds 13 --answer-seconds 14 --stream-seconds 15
        --longest-ms 16000 --linger-seconds 0 --drain-seconds 18
        """
    said = settings(*words.split())
    assert said == RouterSettings(
        backends=(
            ReplicaAddress(url="http://a:1"),
            ReplicaAddress(url="http://b:2", device="gpu-0", share_percent=100.0),
        ),
        objective_s=0.05,
        hold_s=7.0,
        rules=BatchRules(policy=BatchPolicy.EDF, sizes=(1, 3)),
        fixed_s=0.004,
        in_flight=2,
        most_rows=9,
        deadline_header="x-by",
        app_header="x-of",
        pass_headers=("authorization", "x-tenant"),
        probe_path="/live",
        drain_s=18.0,
        linger_s=0.0,
        limits=ClientLimits(
            body_bytes=1024,
            queue_calls=11,
            queue_bytes=2048,
            connections=12,
            body_s=13.0,
            answer_s=14.0,
            stream_s=15.0,
            longest_s=16.0,
        ),
    )
    given = parser().parse_args(
        [*LEAST, "--listen", "h:1", "--metrics", "m:2", "--grpc-listen", "g:3"]
    )
    assert addresses_of(given) == Addresses(http=("h", 1), metrics=("m", 2), grpc=("g", 3))


def test_generative_servers_have_limits_of_their_own() -> None:
    said = settings("--generative", "--cache-limit-percent", "100", "--inter-token-ms", "250")
    assert said.generative == GenerativeSettings(cache_limit=1.0, between_s=0.25)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--longest-ms", "49"), "--objective-ms is above"),
        (("--body-bytes", str(257 * MIB)), "--body-bytes is above"),
        (("--follow", "http://b:1"), "--backend, or one name"),
        (("--backend", "http://a:1"), "names a replica twice"),
        (("--backend", "grpc://b:1"), "all replicas speak HTTP, or all gRPC"),
        (("--inter-token-ms", "5"), "only generative servers"),
    ],
)
def test_what_contradicts_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        settings(*words)


def test_limits_that_are_just_met_are_taken() -> None:
    assert settings("--longest-ms", "50").limits.longest_s == 0.05
    equal = settings("--body-bytes", "1024", "--queue-bytes", "1024").limits
    assert equal.body_bytes == equal.queue_bytes == 1024


def test_over_grpc_only_what_grpc_can_ask_is_probed() -> None:
    grpc = ["--backend", "grpc://a:1", "--objective-ms", "50"]
    assert settings_of(parser().parse_args(grpc)).over_grpc
    assert not settings().over_grpc
    for words in (["--probe-path", "/live"], ["--generative"]):
        with pytest.raises(ValueError, match=words[0]):
            settings_of(parser().parse_args([*grpc, *words]))
    model = [*grpc, "--probe-path", "/v2/models/m/ready"]
    assert settings_of(parser().parse_args(model)).probe_path == "/v2/models/m/ready"


@pytest.mark.parametrize(
    "words",
    [
        ("--backend", "ftp://b:1"),
        ("--backend", "http://b"),
        ("--backend", "http://b:1/path"),
        ("--backend", "http://b:1?x=1"),
        ("--backend", "http://b:1,share=0"),
        ("--backend", "http://b:1,share=101"),
        ("--backend", "http://b:1,weight=1"),
        ("--backend", "http://b:1,share"),
        ("--objective-ms", "0"),
        ("--objective-ms", "inf"),
        ("--objective-ms", "soon"),
        ("--hold-seconds", "-1"),
        ("--in-flight", "0"),
        ("--most-rows", "-1"),
        ("--cache-limit-percent", "101"),
        ("--sizes", "0"),
        ("--sizes", "2,2"),
        ("--sizes", "a"),
    ],
)
def test_a_value_that_makes_no_sense_ends_the_command(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        settings(*words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err
