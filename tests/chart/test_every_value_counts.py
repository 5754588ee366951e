# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every value of the chart is described, has a case, and changes what the chart renders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from chart.rendered import CHART, VALUES_FILES, Helm, Json
from chart.variants import DIGEST, SERVED, VALUES, VARIANTS

SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def leaves(schema: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, entry in schema.get("properties", {}).items():
        path = f"{above}{key}"
        open_ended = "properties" not in entry or path.endswith("namespaceSelector")
        yield from [(path, entry)] if open_ended else leaves(entry, f"{path}.")


def pods(objects: Iterator[Json]) -> Iterator[Json]:
    for body in objects:
        if body["kind"] in ("Deployment", "DaemonSet", "Job"):
            yield body["spec"]["template"]["spec"]


def containers(pod: Json) -> list[Json]:
    return [*pod["containers"], *pod.get("initContainers", [])]


def test_every_value_has_a_case_and_a_description() -> None:
    values = {path: entry for path, entry in leaves(SCHEMA) if path != "global"}
    assert set(values) == set(VALUES)
    assert [path for path, entry in values.items() if len(entry.get("description", "")) < 10] == []


@pytest.mark.parametrize("path", VALUES)
def test_a_value_changes_what_is_rendered(helm: Helm, path: str) -> None:
    case = VALUES[path]
    before = helm.template(*case.beside, *SERVED).objects
    after = helm.template(*case.words(path), *SERVED).objects
    assert after
    assert before != after


TOGETHER: Final = (
    ("webhook", "warnings", "narrow-templates", "monitoring", "mig", "checkpoint", "ec2-notices",
     "host-network", "one-replica", "mirror", "digests", "renamed", "pull-secrets", "orders-nodes"),
    ("webhook-with-a-secret", "warnings-with-a-secret", "secure-metrics", "emulated", "no-mps"),
    ("policy-alone", "no-advice", "no-guard", "no-step-mounts", "no-retire-hook", "no-user-roles",
     "no-network-policies"),
    ("no-admission",),
    ("no-adoption",),
)  # fmt: skip
"""Ways to install that go together; each values file is linted by itself."""


def test_every_way_of_installing_passes_lint(helm: Helm) -> None:
    files = {path.stem for path in VALUES_FILES}
    assert {*files, *(name for names in TOGETHER for name in names)} == set(VARIANTS)
    for names in TOGETHER:
        words = (word for name in names for word in VARIANTS[name])
        assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), *words)


def test_a_registry_stands_before_every_image(helm: Helm) -> None:
    for registry in ("mirror.example.org:5000/team", "mirror.example.org:5000/team/"):
        drawn = helm.template("--set", f"image.registry={registry}")
        found = [one["image"] for pod in pods(iter(drawn.objects)) for one in containers(pod)]
        assert len(found) > 5
        assert all(image.startswith("mirror.example.org:5000/team/ullage-") for image in found)


def test_a_digest_wins_over_the_tag(helm: Helm) -> None:
    words = ("--set", f"operator.image.digest={DIGEST},operator.image.tag=edge,node.image.tag=edge")
    drawn = helm.template(*words)
    operator = drawn.container("Deployment", "ullage-operator")
    assert operator["image"] == f"ullage-operator@{DIGEST}"
    for part in ("LEAD", "ROUTER"):
        names = f"ULLAGE_DECIDE_{part}_IMAGE"
        found = next(one for one in operator["env"] if one["name"] == names)
        assert found["value"] == operator["image"]
    assert drawn.container("DaemonSet", "ullage-node")["image"] == "ullage-deviceplugin:edge"


def test_pull_secrets_reach_every_pod(helm: Helm) -> None:
    drawn = helm.template("--set", "imagePullSecrets[0].name=mirror", *SERVED)
    found = [pod.get("imagePullSecrets") for pod in pods(iter(drawn.objects))]
    assert len(found) == 7
    assert all(secrets == [{"name": "mirror"}] for secrets in found)


def test_another_name_reaches_every_object_and_what_refers_to_it(helm: Helm) -> None:
    """The two renderings are one and the same but for the names."""
    everything = (
        "--set", "monitoring.podMonitor.enabled=true,monitoring.prometheusRule.enabled=true",
        "--set", "monitoring.dashboards.enabled=true,admissionPolicy.templates.enabled=true",
        *SERVED,
    )  # fmt: skip
    before = helm.template(*everything).objects
    after = helm.template(*everything, "--set", "fullnameOverride=gpu").objects
    names = {body["metadata"]["name"] for body in before}
    assert {body["metadata"]["name"] for body in after} == {
        name.replace("ullage", "gpu", 1) for name in names
    }
    # the groups of a rule file have names of their own
    held = json.dumps([body for body in after if body["kind"] != "PrometheusRule"])
    for name in names - {"ullage"}:
        assert f'"{name}"' not in held, name
        assert f":{name}\\" not in held, name


def test_the_label_of_the_name_is_that_of_every_selector(helm: Helm) -> None:
    drawn = helm.template("--set", "nameOverride=sharing,fullnameOverride=gpu")
    for body in drawn.objects:
        assert body["metadata"]["labels"]["app.kubernetes.io/name"] == "sharing"
    for kind, name in (("Deployment", "gpu-operator"), ("DaemonSet", "gpu-node")):
        spec = drawn.one(kind, name)["spec"]
        assert spec["selector"]["matchLabels"]["app.kubernetes.io/name"] == "sharing"
    policy = drawn.one("NetworkPolicy", "gpu")["spec"]["podSelector"]["matchLabels"]
    assert policy["app.kubernetes.io/name"] == "sharing"
