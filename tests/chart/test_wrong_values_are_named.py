# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A wrong value is refused before anything is installed, with its path and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from chart.rendered import CHART, VALUES_FILES, ChartRefused, Helm, environment
from ullage.app.settings import PREFIX, Settings, settings_from
from ullage.process.environment import SettingsError, variables
from ullage_node.settings import load_settings

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "misspelt part": ({"operatr": {}}, "", "'operatr' not allowed"),
    "misspelt value": ({"operator": {"replica": 2}}, "/operator", "'replica' not allowed"),
    "no replicas": ({"operator": {"replicas": 0}}, "/operator/replicas", "minimum"),
    "replicas as text": ({"operator": {"replicas": "2"}}, "/operator/replicas", "want integer"),
    "image as text": ({"operator": {"image": "a:b"}}, "/operator/image", "want object"),
    "empty repository": (
        {"operator": {"image": {"repository": ""}}},
        "/operator/image/repository",
        "minLength",
    ),
    "repository with a tag": (
        {"node": {"image": {"repository": "a:b"}}},
        "/node/image/repository",
        "does not match",
    ),
    "digest that is none": (
        {"node": {"image": {"digest": "sha256:abc"}}},
        "/node/image/digest",
        "does not match",
    ),
    "tag with a blank": ({"node": {"image": {"tag": "a b"}}}, "/node/image/tag", "does not match"),
    "registry with a scheme": (
        {"image": {"registry": "https://mirror.example.org"}},
        "/image/registry",
        "does not match",
    ),
    "name in capitals": ({"fullnameOverride": "GPU"}, "/fullnameOverride", "does not match"),
    "name too long": ({"nameOverride": "a" * 41}, "/nameOverride", "maxLength"),
    "pull policy": (
        {"node": {"image": {"pullPolicy": "Maybe"}}},
        "/node/image/pullPolicy",
        "'IfNotPresent'",
    ),
    "log level": ({"operator": {"logLevel": "loud"}}, "/operator/logLevel", "'warning'"),
    "backend": ({"node": {"backend": "amd"}}, "/node/backend", "'nvidia', 'emulated'"),
    "no sharers": ({"node": {"maxSharers": 0}}, "/node/maxSharers", "minimum"),
    "too many sharers": ({"node": {"maxSharers": 49}}, "/node/maxSharers", "maximum"),
    "folder": ({"node": {"kubeletFolder": "kubelet"}}, "/node/kubeletFolder", "does not match"),
    "folder with a slash": (
        {"node": {"kubeletFolder": "/k/"}},
        "/node/kubeletFolder",
        "does not match",
    ),
    "all agents away": ({"node": {"maxUnavailable": 0}}, "/node/maxUnavailable", "minimum"),
    "resources": ({"node": {"resources": {"limit": {}}}}, "/node/resources", "'limit' not allowed"),
    "selector": (
        {"node": {"nodeSelector": {"gpu": True}}},
        "/node/nodeSelector/gpu",
        "want string",
    ),
    "provider": (
        {"node": {"notices": {"provider": "AWS"}}},
        "/node/notices/provider",
        "'EC2', 'GCE', 'Azure'",
    ),
    "endpoint of notices": (
        {"node": {"notices": {"url": "https://169.254.169.254"}}},
        "/node/notices/url",
        "does not match",
    ),
    "period of notices": (
        {"node": {"notices": {"pollSeconds": 0}}},
        "/node/notices/pollSeconds",
        "exclusiveMinimum",
    ),
    "secret": ({"imagePullSecrets": ["mirror"]}, "/imagePullSecrets/0", "want object"),
    "timeout": ({"retireHook": {"timeoutSeconds": 1}}, "/retireHook/timeoutSeconds", "minimum"),
    "interval": (
        {"monitoring": {"podMonitor": {"interval": "often"}}},
        "/monitoring/podMonitor/interval",
        "does not match",
    ),
    "unknown setting": (
        {"operator": {"settings": {"ULLAGE_WRITES_PER_SECOND": "1"}}},
        "/operator/settings",
        "'ULLAGE_WRITES_PER_SECOND' not allowed",
    ),
    "setting of the other part": (
        {"node": {"settings": {"ULLAGE_WRITE_PER_SECOND": "1"}}},
        "/node/settings",
        "'ULLAGE_WRITE_PER_SECOND' not allowed",
    ),
    "setting with a value of its own": (
        {"node": {"settings": {"ULLAGE_NODE_BACKEND": "nvidia"}}},
        "/node/settings",
        "'ULLAGE_NODE_BACKEND' not allowed",
    ),
    "setting as a number": (
        {"operator": {"settings": {"ULLAGE_WRITE_PER_SECOND": 100}}},
        "/operator/settings/ULLAGE_WRITE_PER_SECOND",
        "want string",
    ),
    "setting that is no number": (
        {"operator": {"settings": {"ULLAGE_WRITE_PER_SECOND": "many"}}},
        "/operator/settings/ULLAGE_WRITE_PER_SECOND",
        "does not match",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, case: str) -> None:
    values, path, words = WRONG[case]
    with pytest.raises(ChartRefused) as refused:
        helm.values(values)
    line = next(line for line in str(refused.value).splitlines() if words in line)
    assert f"at '{path}'" in line


@pytest.mark.parametrize(
    "values",
    [
        {"node": {"maxUnavailable": "25%"}},
        {"node": {"maxUnavailable": 5}},
        {"node": {"settings": {"ULLAGE_NODE_LATE_BINDING": "false"}}},
        {"operator": {"image": {"digest": "sha256:" + "a" * 64}}},
        {"image": {"registry": "mirror.example.org:5000/team/gpu"}},
        {"global": {"anything": 1}},
    ],
    ids=str,
)
def test_right_values_are_taken(helm: Helm, values: dict[str, Any]) -> None:
    assert helm.values(values).objects


@pytest.mark.parametrize("part", ["operator", "node"])
def test_every_value_of_the_schema_has_a_default_that_it_accepts(part: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(SCHEMA).validate(values)
    assert set(SCHEMA["properties"]) - {"global"} == set(values)
    assert set(SCHEMA["properties"][part]["properties"]) == set(values[part])


@pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)
def test_the_processes_accept_every_variable_the_chart_gives_them(helm: Helm, values: Any) -> None:
    rendered = helm.template("-f", str(values))
    asked = yaml.safe_load(values.read_text(encoding="utf-8"))
    name = asked.get("fullnameOverride", "ullage")
    given = environment(rendered.container("Deployment", f"{name}-operator"))
    operator = settings_from(given)
    assert operator.identity == "metadata.name"
    assert operator.lease.namespace == "metadata.namespace"
    agent = load_settings(environment(rendered.container("DaemonSet", f"{name}-node")))
    assert agent.name == "spec.nodeName"
    node = asked.get("node", {})
    assert agent.backend.value == node.get("backend", "nvidia")
    assert agent.max_sharers == node.get("maxSharers", 8)
    wanted = asked.get("operator", {}).get("settings", {}).items()
    assert wanted <= given.items()


def test_every_setting_of_the_operator_can_be_given_once() -> None:
    chart = set(SCHEMA["definitions"]["operatorSettings"]["properties"])
    own = {
        "ULLAGE_IDENTITY",
        "ULLAGE_KUBECONFIG",
        "ULLAGE_LEASE_NAMESPACE",
        "ULLAGE_LEASE_OWNER",
        "ULLAGE_HTTP_PORT",
        "ULLAGE_HTTP_METRICS_PORT",
        "ULLAGE_HTTP_CERTIFICATE_DIR",
        "ULLAGE_HTTP_WEB_PORT",
        "ULLAGE_HTTP_WEB_PROXY",
        "ULLAGE_LOG_LEVEL",
    }
    assert chart | own == {variable.name for variable in variables(Settings, PREFIX)}
    assert not chart & own


def test_every_setting_of_the_agent_that_the_chart_takes_is_known() -> None:
    for name, accepted in SCHEMA["definitions"]["nodeSettings"]["properties"].items():
        value = {"^/": "/x", "^(true|false)$": "true"}.get(accepted.get("pattern", ""), "10")
        load_settings({"ULLAGE_NODE_NAME": "n", name: value})


def test_what_the_schema_refuses_the_operator_refuses_too() -> None:
    accepted = jsonschema.Draft7Validator(SCHEMA["definitions"]["operatorSettings"])
    for raw in ("", "-1", "many", "1,5"):
        values = {"ULLAGE_WRITE_PER_SECOND": raw}
        assert not accepted.is_valid(values)
        with pytest.raises(SettingsError):
            settings_from(values)
