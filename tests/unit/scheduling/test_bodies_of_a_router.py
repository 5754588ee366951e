# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the operator makes of a router: pods without rights, arguments that the router takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import an_owner
from builders_raw import raw_template
from ullage.api.batching import Batching, Generative, RouterLimits, RouterPods
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage.api.words import BatchingPolicy
from ullage.cluster.records.workload import WorkloadKind
from ullage.kube.manifests.children import service_body
from ullage.kube.manifests.router import router_deployment
from ullage.scheduling.model.plan import ApplyRoutedService, ApplyRouter, ApplyService
from ullage.scheduling.model.selectors import owner_labels
from ullage_router.settings import addresses_of, parser, settings_of

SERVE = an_owner("serve", kind=WorkloadKind.INFERENCE_DEPLOYMENT)
OURS = owner_labels(SERVE)


def template(**container: Any) -> dict[str, Any]:
    made = raw_template()
    made["spec"]["containers"][0] |= {"ports": [{"name": "http", "containerPort": 8000}]}
    made["spec"]["containers"][0] |= container
    return made


def action(batching: Batching | None = None, objective_ms: int = 50) -> ApplyRouter:
    return ApplyRouter(
        owner=SERVE,
        name="serve-router",
        image="ullage-operator:1",
        batching=batching or Batching(),
        objective_ms=objective_ms,
        version="abc",
        epoch=1,
        reason=Reason.ROUTER_STARTING,
        text="",
    )


def pod(made: dict[str, Any] | None = None, batching: Batching | None = None) -> dict[str, Any]:
    body = router_deployment(action(batching), made or template())
    return body["spec"]["template"]["spec"]  # type: ignore[index, no-any-return]


def arguments(made: dict[str, Any] | None = None, batching: Batching | None = None) -> list[str]:
    command: list[str] = pod(made, batching)["containers"][0]["command"]
    assert command[:3] == ["python", "-m", "ullage_router"]
    return command[3:]


def service(*, headless: bool = False, routed: bool = False) -> ApplyService:
    return (ApplyRoutedService if routed else ApplyService)(
        owner=SERVE,
        name="serve",
        headless=headless,
        epoch=1,
        reason=Reason.STARTING,
        text="",
    )


def test_its_pods_have_no_rights_and_are_no_replicas() -> None:
    body: Any = router_deployment(action(), template())
    assert body["metadata"]["labels"] == OURS
    assert body["metadata"]["ownerReferences"][0]["uid"] == SERVE.uid
    labels = body["spec"]["template"]["metadata"]["labels"]
    assert labels == body["spec"]["selector"]["matchLabels"] == {"ullage.dev/router": "serve"}
    assert not OURS.items() & labels.items()
    spec = body["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["resources"]["limits"] == {"memory": str(2**30)}
    assert container["resources"]["requests"] == {"cpu": "250m", "memory": str(2**30)}


@pytest.mark.parametrize("hold_s", [0, 30, 600])
def test_it_has_the_time_to_answer_what_it_holds_before_it_ends(hold_s: int) -> None:
    batching = Batching(hold_s=hold_s)
    settings = settings_of(parser().parse_args(arguments(batching=batching)))
    grace = pod(batching=batching)["terminationGracePeriodSeconds"]
    assert settings.drain_s >= settings.hold_s + settings.limits.answer_s
    assert settings.linger_s + settings.drain_s < grace <= settings.hold_s + 60


def test_it_may_take_its_time_to_start_and_none_to_be_alive() -> None:
    (container,) = pod()["containers"]
    start, life = container["startupProbe"], container["livenessProbe"]
    assert start["httpGet"] == life["httpGet"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 60
    assert "initialDelaySeconds" not in life
    assert life["periodSeconds"] * life.get("failureThreshold", 3) <= 30


def test_it_takes_no_pod_away_before_another_is_ready() -> None:
    body: Any = router_deployment(action(), template())
    assert body["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_its_pods_do_not_change_with_their_number() -> None:
    one: Any = router_deployment(action(), template())
    two: Any = router_deployment(action(Batching(router=RouterPods(replicas=2))), template())
    assert (one["spec"]["replicas"], two["spec"]["replicas"]) == (1, 2)
    assert one["spec"]["template"] == two["spec"]["template"]


@pytest.mark.slow
@given(
    policy=st.sampled_from(BatchingPolicy),
    sizes=st.lists(st.integers(1, 1024), min_size=1, max_size=16, unique=True).map(sorted),
    in_flight=st.integers(1, 1024),
    hold_s=st.integers(0, 600),
    body=st.integers(1024, 2**30),
    more=st.integers(0, 2**30),
    queue=st.integers(1, 100_000),
    stream_s=st.integers(1, 86_400),
    objective_ms=st.integers(1, 3_600_000),
    port=st.integers(1, 65_535),
)
def test_whatever_the_schema_takes_the_router_takes(
    policy: BatchingPolicy,
    sizes: list[int],
    in_flight: int,
    hold_s: int,
    body: int,
    more: int,
    queue: int,
    stream_s: int,
    objective_ms: int,
    port: int,
) -> None:
    batching = Batching(
        policy=policy,
        sizes=tuple(sizes),
        in_flight=in_flight,
        hold_s=hold_s,
        limits=RouterLimits(
            body_bytes=body, queue=queue, queue_bytes=body + more, stream_s=stream_s
        ),
    )
    made: Any = router_deployment(
        action(batching, objective_ms), template(ports=[{"containerPort": port}])
    )
    words = made["spec"]["template"]["spec"]["containers"][0]["command"][3:]
    given_ = parser().parse_args(words)
    settings = settings_of(given_)
    assert settings.rules.policy.value == policy.value
    assert settings.rules.sizes == tuple(sizes)
    assert settings.followed is not None
    assert settings.followed.url == f"http://serve-replicas:{port}"
    assert settings.objective_s == objective_ms / 1e3
    assert (settings.in_flight, settings.hold_s) == (in_flight, hold_s)
    assert settings.limits.body_bytes == body
    assert settings.limits.queue_bytes == body + more
    assert settings.limits.queue_calls == queue
    assert settings.limits.stream_s == stream_s
    assert settings.limits.connections > queue
    addresses = addresses_of(given_)
    ports = {
        one["name"]: one["containerPort"]
        for one in made["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    assert ports == {"http": addresses.http[1], "metrics": addresses.metrics[1]}


@pytest.mark.parametrize(
    ("probe", "said", "path"),
    [
        (None, "", "/v2/health/ready"),
        ({"httpGet": {"path": "/healthz", "port": "http"}}, "", "/healthz"),
        ({"httpGet": {"path": "/healthz", "port": 8000}}, "", "/healthz"),
        ({"httpGet": {"path": "/healthz", "port": 9000}}, "", "/v2/health/ready"),
        ({"httpGet": {"port": "http"}}, "", "/v2/health/ready"),
        ({"tcpSocket": {"port": "http"}}, "", "/v2/health/ready"),
        ({"httpGet": {"path": "/healthz", "port": "http"}}, "/own", "/own"),
    ],
)
def test_replicas_are_asked_as_kubelet_asks_them(
    probe: dict[str, Any] | None, said: str, path: str
) -> None:
    made = template() if probe is None else template(readinessProbe=probe)
    words = arguments(made, Batching(probe_path=said))
    assert settings_of(parser().parse_args(words)).probe_path == path


def test_generative_replicas_have_their_limits_and_time_for_long_answers() -> None:
    batching = Batching(sizes=(1,), generative=Generative(cache_limit_percent=80))
    made: Any = router_deployment(replace(action(batching, 2000), inter_token_ms=40), template())
    words = made["spec"]["template"]["spec"]["containers"][0]["command"][3:]
    settings = settings_of(parser().parse_args(words))
    assert settings.generative is not None
    assert (settings.generative.cache_limit, settings.generative.between_s) == (0.8, 0.04)
    assert (settings.objective_s, settings.limits.answer_s) == (2.0, 600)
    assert settings_of(parser().parse_args(arguments())).generative is None


def test_images_are_pulled_as_those_of_the_replicas() -> None:
    made = template()
    made["spec"] |= {"imagePullSecrets": [{"name": "mirror"}], "priorityClassName": "web"}
    assert pod(made)["imagePullSecrets"] == [{"name": "mirror"}]
    assert pod(made)["priorityClassName"] == "web"


def test_clients_find_the_router_where_the_replicas_were() -> None:
    ports = [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9000}]
    direct: Any = service_body(service(), template(ports=ports))
    routed: Any = service_body(service(routed=True), template(ports=ports))
    assert routed["spec"]["selector"] == {"ullage.dev/router": "serve"}
    assert routed["spec"]["ports"] == [
        {"name": "http", "port": 8000, "targetPort": 8080, "protocol": "TCP"}
    ]
    assert direct["spec"]["selector"] == OURS
    assert [one["port"] for one in direct["spec"]["ports"]] == [8000, 9000]


def test_replicas_have_a_name_before_they_are_ready() -> None:
    named: Any = service_body(service(headless=True), template())
    assert named["spec"]["clusterIP"] == "None"
    assert named["spec"]["publishNotReadyAddresses"] is True
    assert named["spec"]["selector"] == OURS
    assert named["spec"]["ports"][0]["port"] == 8000


@pytest.mark.parametrize("ports", [[], [{"name": "http"}], [{"containerPort": "http"}]])
def test_without_a_readable_port_there_is_no_router(ports: list[Any]) -> None:
    with pytest.raises(WireError, match="ports"):
        router_deployment(action(), template(ports=ports))


def test_grpc_has_a_port_of_its_own_where_it_is_asked_for() -> None:
    batching = Batching(grpc_port=9000)
    (container,) = pod(batching=batching)["containers"]
    assert {one["name"]: one["containerPort"] for one in container["ports"]}["grpc"] == 8081
    assert addresses_of(parser().parse_args(arguments(batching=batching))).grpc == ("0.0.0.0", 8081)
    assert addresses_of(parser().parse_args(arguments())).grpc is None
    routed: Any = service_body(replace(service(routed=True), grpc_port=9000), template())
    assert routed["spec"]["ports"][1] == {
        "name": "grpc",
        "port": 9000,
        "targetPort": 8081,
        "protocol": "TCP",
        "appProtocol": "kubernetes.io/h2c",
    }
    taken = template(ports=[{"name": "grpc", "containerPort": 8000}])
    named: Any = service_body(replace(service(routed=True), grpc_port=9000), taken)
    assert [one["name"] for one in named["spec"]["ports"]] == ["grpc", "grpc-inference"]


def test_what_it_says_before_it_ends_is_kept() -> None:
    assert pod()["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
