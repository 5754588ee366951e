# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The example of a suggestion service: the program that asks it has one right, the service none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ullage_katib.__main__ import UNUSABLE, parsed
from ullage_katib.search import read_search

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def parts() -> dict[str, Body]:
    text = (ROOT / "examples" / "15-katib.yaml").read_text(encoding="utf-8")
    return {body["kind"]: body for body in yaml.safe_load_all(text)}


def pod(parts: dict[str, Body]) -> Body:
    found: Body = parts["Job"]["spec"]["template"]["spec"]
    return found


def test_the_words_of_the_job_are_those_of_the_program(parts: dict[str, Body]) -> None:
    (container,) = pod(parts)["containers"]
    assert container["command"][:3] == ["python", "-m", "ullage_katib"]
    words = [*container["command"][3:], *container["args"], "--kubeconfig="]
    found = parsed([word.replace("$(NAMESPACE)", "team-a") for word in words])
    assert found.options.name == parts["TuningJob"]["metadata"]["name"]
    assert found.options.namespace == "team-a"
    (service,) = pod(parts)["initContainers"]
    assert found.service == f"localhost:{service['startupProbe']['tcpSocket']['port']}"


def test_its_role_is_to_get_and_patch_one_tuning_job(parts: dict[str, Body]) -> None:
    assert parts["Role"]["rules"] == [
        {
            "apiGroups": ["ullage.dev"],
            "resources": ["tuningjobs"],
            "resourceNames": [parts["TuningJob"]["metadata"]["name"]],
            "verbs": ["get", "patch"],
        }
    ]
    assert parts["RoleBinding"]["roleRef"]["name"] == parts["Role"]["metadata"]["name"]
    (subject,) = parts["RoleBinding"]["subjects"]
    assert subject["name"] == pod(parts)["serviceAccountName"]


def test_the_service_has_no_token(parts: dict[str, Body]) -> None:
    assert pod(parts)["automountServiceAccountToken"] is False
    (program,), (service,) = pod(parts)["containers"], pod(parts)["initContainers"]
    assert [one["mountPath"] for one in program["volumeMounts"]] == [TOKEN]
    assert "volumeMounts" not in service
    for container in (program, service):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_failure_that_no_other_start_helps_ends_the_job(parts: dict[str, Body]) -> None:
    (rule,) = parts["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [UNUSABLE]
    assert rule["onExitCodes"]["containerName"] == pod(parts)["containers"][0]["name"]
    assert pod(parts)["restartPolicy"] == "Never", "a policy for failures needs it"


def test_its_search_takes_suggestions(parts: dict[str, Body]) -> None:
    job = parts["TuningJob"]
    job["metadata"] |= {"namespace": "team-a", "uid": "u", "generation": 1, "resourceVersion": "1"}
    search = read_search(job)
    assert search.wanted == search.record.parallelism
    assert not search.over
