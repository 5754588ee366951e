# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a real API server says to the golden manifests, in the words that a user reads.

The objects of update cases are created for real in a namespace of their own; everything else is
a server-side dry run, so that an operator which happens to run has nothing to say.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from golden_manifests import Golden, goldens
from ullage.api.labels import GROUP

pytestmark = pytest.mark.e2e

NAMESPACE = "golden-manifests"
ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
STATUSES = sorted((ROOT / "tests" / "data" / "crd" / "status").glob("*.yaml"))
CASES = list(goldens().values())
AT_ONCE = 4
"""Dry runs: most of the time of one is that a process starts."""
DRY_RUN = ("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
Answer = subprocess.CompletedProcess[str]
"""Of kubectl."""


class Cluster(Protocol):
    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> Answer: ...

    def helm(self, *arguments: str) -> str: ...


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that knows our kinds, with a namespace for this module."""
    release = ("upgrade", "--install", "ullage-crds", str(ROOT / "charts" / "ullage-crds"))
    cluster.helm(*release, "--namespace", "ullage-system", "--create-namespace", "--wait")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=600s", "-f", str(CRDS))
    cluster.kubectl("create", "namespace", NAMESPACE, check=False)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def answers(api: Cluster) -> Iterator[dict[str, Answer]]:
    """What the API server says to each case that needs no object before it, by case."""
    alone = [one for one in CASES if not one.after]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = pool.map(lambda one: dry_run(api, one), alone)
        yield {one.case: answer for one, answer in zip(alone, said, strict=True)}


def dry_run(api: Cluster, golden: Golden) -> Answer:
    return api.kubectl("-n", NAMESPACE, *DRY_RUN, stdin=golden.text, check=False)


@pytest.fixture
def answer(api: Cluster, golden: Golden, answers: dict[str, Answer], before: None) -> Answer:
    """What the API server says to the case."""
    return dry_run(api, golden) if golden.after else answers[golden.case]


def create(api: Cluster, golden: Golden) -> None:
    """Make the object that an update case starts from, in exactly that state."""
    delete = ("delete", "--ignore-not-found", "--wait", "--timeout=600s", "-f", "-")
    api.kubectl("-n", NAMESPACE, *delete, stdin=golden.text)
    api.kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=golden.text)


@pytest.fixture
def before(api: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """The object that must exist before the case."""
    golden: Golden = request.getfixturevalue("golden")
    if not golden.after:
        yield
        return
    base = goldens()[golden.after]
    create(api, base)
    yield
    api.kubectl("-n", NAMESPACE, "delete", "--wait=false", "-f", "-", stdin=base.text)


@pytest.mark.parametrize("golden", [c for c in CASES if c.valid], ids=lambda golden: golden.case)
def test_api_server_takes_valid_manifest(answer: Answer, golden: Golden) -> None:
    assert answer.returncode == 0, answer.stderr
    assert f".{GROUP}/" in answer.stdout
    warnings = [line for line in answer.stderr.splitlines() if "Warning" in line]
    assert all("'ullage-advice-jobs'" in line for line in warnings), warnings


@pytest.mark.parametrize(
    "golden", [c for c in CASES if not c.valid], ids=lambda golden: golden.case
)
def test_api_server_refuses_with_the_text_that_helps(answer: Answer, golden: Golden) -> None:
    assert answer.returncode != 0, answer.stdout
    assert golden.says in answer.stderr


def definitions() -> list[dict[str, object]]:
    return [yaml.safe_load(path.read_text("utf-8")) for path in sorted(CRDS.glob("*.yaml"))]


@pytest.mark.parametrize("crd", definitions(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_kubectl_explains_every_field(api: Cluster, crd: dict[str, object]) -> None:
    plural = crd["spec"]["names"]["plural"]
    answer = api.kubectl("explain", f"{plural}.{GROUP}", "--recursive")
    explained = {line.split("\t")[0].strip() for line in answer.stdout.splitlines()}
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        text = api.kubectl("explain", f"{plural}.{GROUP}.{part}").stdout
        fields = schema["properties"][part]["properties"]
        assert explained >= fields.keys()
        assert "<no description>" not in text
        for field in fields.values():
            assert field["description"].split()[0] in text


def test_api_server_accepts_the_definitions_without_a_warning(api: Cluster) -> None:
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(CRDS))
    answer = api.kubectl(*apply)
    assert "Warning" not in answer.stderr
    for crd in definitions():
        name = crd["metadata"]["name"]
        shown = api.kubectl("get", "crd", name, "-o", "yaml").stdout
        conditions = {c["type"]: c["status"] for c in yaml.safe_load(shown)["status"]["conditions"]}
        assert conditions["Established"] == conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions


def test_every_kind_stands_in_the_category(api: Cluster) -> None:
    listed = api.kubectl("api-resources", "--categories=ullage", "-o", "name").stdout.split()
    assert listed == sorted(f"{crd['spec']['names']['plural']}.{GROUP}" for crd in definitions())


@pytest.mark.parametrize("path", STATUSES, ids=lambda path: path.stem)
def test_status_is_stored_whole(api: Cluster, path: Path) -> None:
    sample = path.read_text("utf-8")
    api.kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=sample)
    apply = ("apply", "--server-side", "--subresource=status", "--force-conflicts")
    strict = ("--dry-run=server", "--validate=strict", "-o", "yaml", "-f", "-")
    stored = api.kubectl("-n", NAMESPACE, *apply, *strict, stdin=sample).stdout
    shown = api.kubectl("-n", NAMESPACE, "get", "-o", "wide", "-f", "-", stdin=sample).stdout
    api.kubectl("-n", NAMESPACE, "delete", "--wait=false", "-f", "-", stdin=sample)
    assert contains(yaml.safe_load(stored)["status"], yaml.safe_load(sample)["status"])
    assert len(shown.splitlines()[0].split()) >= 6, "fewer than five columns beside the name"


def contains(whole: object, part: object) -> bool:
    """Whether all of ``part`` stands in ``whole``; lists may hold more."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and contains(whole[name], part[name]) for name in part)
    if isinstance(part, list) and isinstance(whole, list):
        return all(any(contains(item, wanted) for item in whole) for wanted in part)
    return whole == part


def test_scale_is_held_within_its_bounds(api: Cluster) -> None:
    golden = goldens()["service-everything"]
    create(api, golden)
    scale = ("-n", NAMESPACE, "scale", "inferencedeployments.ullage.dev/service-everything")
    api.kubectl(*scale, "--replicas=4")
    refused = api.kubectl(*scale, "--replicas=5", check=False)
    api.kubectl("-n", NAMESPACE, "delete", "--wait=false", "-f", "-", stdin=golden.text)
    assert refused.returncode != 0
    assert "spec.replicas (5) must be between scaling.minReplicas (1)" in refused.stderr


def test_older_epoch_is_refused_even_by_force(api: Cluster) -> None:
    base = goldens()["node-base"]
    create(api, base)
    older = base.text.replace("epoch: 5", "epoch: 4")
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-")
    refused = api.kubectl(*apply, stdin=older, check=False)
    api.kubectl("delete", "--wait=false", "-f", "-", stdin=base.text)
    assert refused.returncode != 0
    assert "spec.epoch must not decrease" in refused.stderr
