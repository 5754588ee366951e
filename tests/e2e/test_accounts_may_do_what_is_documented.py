# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What each role and account may do, as the API server judges it, and that it is enough.

A matrix of access reviews for everyone, and the commands of a user who has nothing but
``ullage-batch-user`` in one namespace, with a token of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.install import NAMESPACE
from e2e.stack import BUSY_MACHINE, Stack, busy_template, eventually, training_job
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import from_kubeconfig
from ullage.kube.reviews import reviews
from ullage.process.token_access import TokenAccess

Json = dict[str, Any]
ELSEWHERE = "default"
OPERATOR, AGENT = (
    f"system:serviceaccount:{NAMESPACE}:{name}" for name in ("ullage-operator", "ullage-node")
)
PEOPLE = {
    "batch": "ullage-batch-user",
    "editor": "edit",
    "viewer": "view",
    "nobody": "",
}
"""Users with one ClusterRole each, bound in one namespace."""
NAMESPACED = {
    *("trainingjobs", "inferencedeployments", "tuningjobs", "profilerequests", "workloadprofiles"),
    *("secrets", "pods"),
}
HOUSE = ("schedulingpolicies", "deviceprofiles", "capacitypools")
EVERYONE = (*PEOPLE, "admin", OPERATOR, AGENT)


@dataclass(frozen=True, slots=True)
class Action:
    """What someone may want to do.

    Attributes:
        verb: Of the API.
        resource: ``plural``, ``plural/subresource`` or ``plural.group``.
        allowed: Who may do it in the namespace of the roles, or cluster-wide.
        elsewhere: Who may do it in another namespace, too.
    """

    verb: str
    resource: str
    allowed: frozenset[str]
    elsewhere: frozenset[str] = frozenset()


def action(verb: str, resource: str, *allowed: str, elsewhere: tuple[str, ...] = ()) -> Action:
    return Action(verb, resource, frozenset(allowed), frozenset(elsewhere))


MATRIX = [
    *(
        action(verb, f"{kind}.ullage.dev", "batch", "editor", "admin", elsewhere=("admin",))
        for verb in ("create", "update")
        for kind in ("trainingjobs", "inferencedeployments", "tuningjobs")
        if (verb, kind) != ("create", "trainingjobs")
    ),
    *(
        action(
            "patch", f"{kind}.ullage.dev", "batch", "editor", "admin", OPERATOR,
            elsewhere=("admin", OPERATOR),
        )
        for kind in ("trainingjobs", "inferencedeployments", "tuningjobs")
    ),
    action("patch", "capacitypools.ullage.dev", "admin", OPERATOR),
    action(
        "create", "trainingjobs.ullage.dev", "batch", "editor", "admin", OPERATOR,
        elsewhere=("admin", OPERATOR),
    ),
    action(
        "delete", "trainingjobs.ullage.dev", "batch", "editor", "admin", OPERATOR,
        elsewhere=("admin", OPERATOR),
    ),
    action(
        "list", "trainingjobs.ullage.dev", "batch", "editor", "viewer", "admin", OPERATOR,
        elsewhere=("admin", OPERATOR),
    ),
    action("patch", "inferencedeployments.ullage.dev/scale", "batch", "editor", "admin",
           elsewhere=("admin",)),
    *(
        action("patch", f"{kind}.ullage.dev/status", OPERATOR, elsewhere=(OPERATOR,))
        for kind in (
            "trainingjobs",
            "inferencedeployments",
            "tuningjobs",
            "profilerequests",
            "workloadprofiles",
        )
    ),
    *(
        action(verb, f"{kind}.ullage.dev", "admin")
        for verb in ("update", "delete")
        for kind in HOUSE
    ),
    *(action("list", f"{kind}.ullage.dev", "admin", OPERATOR) for kind in HOUSE),
    action("list", "gpunodes.ullage.dev", "admin", OPERATOR, AGENT),
    action("patch", "gpunodes.ullage.dev", OPERATOR),
    action("patch", "gpunodes.ullage.dev/status", AGENT),
    action("delete", "gpunodes.ullage.dev"),
    action("create", "secrets", "editor", OPERATOR, elsewhere=(OPERATOR,)),
    action("get", "secrets", "editor"),
    action("create", "pods/exec", "editor"),
    action("impersonate", "users"),
    action("bind", "clusterroles.rbac.authorization.k8s.io"),
    action("escalate", "clusterroles.rbac.authorization.k8s.io"),
    action("create", "pods", "editor", OPERATOR, elsewhere=(OPERATOR,)),
    action("create", "pods/eviction", "editor", OPERATOR, elsewhere=(OPERATOR,)),
    action("patch", "nodes", OPERATOR),
    action("delete", "nodes"),
]  # fmt: skip


def review(who: str, asked: Action, namespace: str) -> Json:
    plain, _, group = asked.resource.partition(".")
    if "/" in group:
        group, _, sub = group.partition("/")
    else:
        plain, _, sub = plain.partition("/")
    attributes = {
        "verb": asked.verb,
        "group": group,
        "resource": plain,
        "subresource": sub,
        "namespace": namespace if plain in NAMESPACED else "",
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": who, "resourceAttributes": attributes},
    }


def role_binding(name: str, role: str, subject: Json, namespace: str = "") -> Json:
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def user(name: str) -> Json:
    return {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


def allowed(stack: Stack, asked: Sequence[tuple[str, Action, str]]) -> list[bool]:
    """Whether each may do it there, as the API server says."""
    items = [review(who, what, where) for who, what, where in asked]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    said = stack.cluster.kubectl("create", "-f", "-", "-o", "json", stdin=body).stdout
    answers = [bool(one["status"]["allowed"]) for one in objects_of(said)]
    assert len(answers) == len(asked)
    return answers


@pytest.fixture
def bound(stack: Stack, namespace: str) -> Iterator[str]:
    """A namespace in which everyone has their role."""
    stack.apply(
        *(role_binding(who, role, user(who), namespace) for who, role in PEOPLE.items() if role),
        role_binding("test-ullage-admin", "ullage-admin", user("admin")),
    )
    mine = action("list", "trainingjobs.ullage.dev")
    asked = [(who, mine, namespace) for who in (*(PEOPLE.keys() - {"nobody"}), "admin")]
    # the API server follows new bindings a moment later
    eventually(lambda: all(allowed(stack, asked)), within_s=60, what="all bindings count")
    yield namespace
    stack.cluster.kubectl("delete", "clusterrolebinding", "test-ullage-admin")


def test_everyone_may_do_what_the_matrix_says_and_nothing_else(stack: Stack, bound: str) -> None:
    asked = [
        (who, one, where) for one in MATRIX for who in EVERYONE for where in (bound, ELSEWHERE)
    ]
    wrong = []
    for (who, one, where), may in zip(asked, allowed(stack, asked), strict=True):
        # a binding in a namespace says nothing of another, and nothing of what has none
        expected = who in (one.allowed if where == bound else one.elsewhere | _everywhere(one))
        if may != expected:
            wrong.append(f"{who} {one.verb} {one.resource} in {where}: {may}")
    assert not wrong, "\n".join(wrong)


def _everywhere(one: Action) -> frozenset[str]:
    """Who may do it anywhere because it has no namespace."""
    plain = one.resource.split(".")[0].split("/")[0]
    return frozenset() if plain in NAMESPACED else one.allowed


def objects_of(text: str) -> list[Json]:
    """JSON objects one after the other, or the items of a list."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        one, at = decoder.raw_decode(text, at)
        found += one["items"] if one["kind"] == "List" else [one]
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


@pytest.fixture
def kubeconfig(stack: Stack, namespace: str, tmp_path: Path) -> Path:
    """The credentials of a ServiceAccount that is a batch user of one namespace, no more."""
    kubectl = stack.cluster.kubectl
    kubectl("create", "serviceaccount", "scientist", "--namespace", namespace)
    account = {"kind": "ServiceAccount", "name": "scientist", "namespace": namespace}
    stack.apply(role_binding("scientist", PEOPLE["batch"], account, namespace))
    token = kubectl("create", "token", "scientist", "--namespace", namespace).stdout.strip()
    admin = yaml.safe_load(stack.cluster.kubeconfig.read_text(encoding="utf-8"))
    own = admin | {
        "users": [{"name": one["name"], "user": {"token": token}} for one in admin["users"]]
    }
    for context in own["contexts"]:
        context["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(own), encoding="utf-8")
    return path


def ullage(kubeconfig: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ullage.cli.main", "--kubeconfig", str(kubeconfig), *words],
        input=stdin, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_a_batch_user_needs_no_right_of_the_cluster(
    stack: Stack, namespace: str, kubeconfig: Path
) -> None:
    stack.apply(training_job("train", namespace, busy_template(3600)))
    stack.job_reaches("train", namespace, "Running")
    told = ullage(kubeconfig, "why", "train")
    assert told.returncode == 0, told.stderr
    assert told.stderr.startswith("without pods"), "what its right leaves out is said"
    assert f"TrainingJob {namespace}/train" in told.stdout
    for words in (("status",), ("cost",), ("explain", "NoCapacity")):
        told = ullage(kubeconfig, *words)
        assert told.returncode == 0, (words, told.stderr)
    profile = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": {"class": "mine"},
    }
    stack.apply(profile)
    told = ullage(kubeconfig, "profile", "export", "mine")
    assert told.returncode == 0, told.stderr
    told = ullage(kubeconfig, "profile", "import", "again", "-f", "-", stdin=told.stdout)
    assert told.returncode == 0, told.stderr
    assert "accelerators are not checked" in told.stderr
    assert eventually(
        lambda: stack.get("workloadprofiles.ullage.dev", "again", namespace),
        within_s=10,
        what="the imported profile",
    )


@pytest.mark.parametrize(
    ("words", "verb"), [(("top",), "list"), (("doctor",), "list"), (("status", "-A"), "list")]
)
def test_a_right_that_is_missing_is_named(
    stack: Stack, kubeconfig: Path, words: tuple[str, ...], verb: str
) -> None:
    told = ullage(kubeconfig, *words)
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    assert "not allowed" in told.stderr
    assert f'cannot {verb} resource "' in told.stderr


async def test_a_token_reads_metrics_once_its_account_may(stack: Stack, namespace: str) -> None:
    """The reviews of metrics over TLS, as a real API server answers them."""
    kubectl, role = stack.cluster.kubectl, f"metrics-reader-{namespace}"
    kubectl("create", "serviceaccount", "scraper", "-n", namespace)
    token = kubectl("create", "token", "scraper", "-n", namespace).stdout.strip()
    credentials = await from_kubeconfig(stack.cluster.kubeconfig)
    async with K8sCluster(credentials) as cluster:

        async def status(bearer: str) -> int:
            access = TokenAccess(reviews(cluster))
            return (await access.judge(f"Bearer {bearer}", "/metrics")).status

        assert await status("not-a-token") == 401
        assert await status(token) == 403
        kubectl("create", "clusterrole", role, "--verb=get", "--non-resource-url=/metrics")
        kubectl(
            "create", "clusterrolebinding", role, f"--clusterrole={role}",
            f"--serviceaccount={namespace}:scraper",
        )  # fmt: skip
        try:
            async with asyncio.timeout(30 * BUSY_MACHINE):
                while await status(token) != 200:
                    await asyncio.sleep(0.2)
        finally:
            kubectl("delete", "clusterrolebinding", role)
            kubectl("delete", "clusterrole", role)
