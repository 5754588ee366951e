# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the pods may do on their nodes: the operator nothing, the agent what its page lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from chart.rendered import ROOT, Helm, Json, Rendered, environment
from docs.generate.pages import AGENT_FOLDERS, GUARD_FOLDERS
from ullage_node.guard.protocol import guard_socket
from ullage_node.settings import PathSettings

RESTRICTED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def restricted_faults(pod: Json) -> Iterator[str]:
    """What the Pod Security Standard "restricted" forbids (Kubernetes 1.33, Linux pods)."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield key
    for volume in pod.get("volumes", []):
        if not volume.keys() - {"name"} <= RESTRICTED_VOLUMES:
            yield f"volume {volume['name']}"
    shared = pod.get("securityContext", {})
    for container in pod.get("initContainers", []) + pod["containers"]:
        context = {**shared, **container.get("securityContext", {})}
        yield from (f"{container['name']}: {fault}" for fault in _container_faults(context))
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{container['name']}: hostPort"


def _container_faults(context: Mapping[str, Any]) -> Iterator[str]:
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may escalate"
    if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
        yield "may be root"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "no seccomp profile"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "keeps capabilities"
    if not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield "adds capabilities"


RESTRICTED = [("Deployment", "ullage-operator"), ("Job", "ullage-retire"), ("Job", "ullage-serve")]
DAEMONS = [("DaemonSet", "ullage-node"), ("DaemonSet", "ullage-processes")]
every_pod = pytest.mark.parametrize(
    ("kind", "name"), [*RESTRICTED, *DAEMONS], ids=lambda word: word
)


@pytest.mark.parametrize(("kind", "name"), RESTRICTED, ids=lambda word: word)
def test_pods_of_the_operator_are_restricted(rendered: Rendered, kind: str, name: str) -> None:
    pod = rendered.one(kind, name)["spec"]["template"]["spec"]
    assert list(restricted_faults(pod)) == []


def test_the_check_of_restricted_pods_finds_faults(rendered: Rendered) -> None:
    pod = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    assert "plugin: may be root" in set(restricted_faults(pod))
    assert "volume cdi" in set(restricted_faults(pod))
    assert set(restricted_faults({"hostPID": True, "containers": [{"name": "c"}]})) >= {
        "hostPID",
        "c: may escalate",
        "c: keeps capabilities",
        "c: no seccomp profile",
    }


@pytest.mark.parametrize("backend", ["rendered", "emulated"])
def test_the_agent_is_root_without_any_power(backend: str, request: Any) -> None:
    bodies: Rendered = request.getfixturevalue(backend)
    pod = bodies.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert [container["name"] for container in pod["containers"]] == ["plugin", "guard"]
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }


@pytest.mark.parametrize("backend", ["rendered", "emulated"])
def test_what_may_mount_sees_one_folder_and_ends(backend: str, request: Any) -> None:
    bodies: Rendered = request.getfixturevalue(backend)
    pod = bodies.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    (container,) = pod["initContainers"]
    assert container["args"] == ["mounts"]
    assert "restartPolicy" not in container, "it ends before the agent begins"
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == str(PathSettings().run_dir)
    assert mount["mountPropagation"] == "Bidirectional"
    assert {one["name"] for one in container["env"]} == {
        "ULLAGE_NODE_NAME",
        "ULLAGE_NODE_MAX_SHARERS",
    }


def test_nothing_may_mount_where_that_is_switched_off(helm: Helm) -> None:
    bodies = helm.values({"node": {"stepMounts": {"enabled": False}}})
    pod = bodies.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    assert "initContainers" not in pod


@pytest.mark.parametrize("backend", ["rendered", "emulated"])
def test_the_agent_sees_the_documented_folders_only(backend: str, request: Any) -> None:
    bodies: Rendered = request.getfixturevalue(backend)
    other = "emulated devices" if backend == "rendered" else "NVIDIA devices"
    listed = {path: access for path, access, use in AGENT_FOLDERS if not use.startswith(other)}
    assert host_folders(bodies, "plugin") == listed
    page = (ROOT / "docs" / "reference" / "rbac.md").read_text(encoding="utf-8")
    assert all(f"| `{path}` | {access} |" in page for path, access in listed.items())


@pytest.mark.parametrize("backend", ["rendered", "emulated"])
def test_the_guard_alone_may_write_control_groups(backend: str, request: Any) -> None:
    bodies: Rendered = request.getfixturevalue(backend)
    assert host_folders(bodies, "guard") == {path: access for path, access, _ in GUARD_FOLDERS}
    page = (ROOT / "docs" / "reference" / "rbac.md").read_text(encoding="utf-8")
    assert all(f"| `{path}` | {access} |" in page for path, access, _ in GUARD_FOLDERS)
    assert host_folders(bodies, "plugin").get("/sys/fs/cgroup", "read") == "read"


def test_the_guard_finds_tree_and_processes_where_they_are_mounted(rendered: Rendered) -> None:
    container = rendered.container("DaemonSet", "ullage-node", "guard")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    said = environment(container)
    assert container["args"] == ["guard"]
    assert said["ULLAGE_NODE_PATHS_CGROUP_ROOT"] == mounts["host-cgroup"]
    assert said["ULLAGE_NODE_PATHS_PROC_ROOT"] == mounts["host-proc"]
    assert mounts["guard"] == str(guard_socket(PathSettings().run_dir).parent)


def test_every_folder_of_the_host_is_somebodys(rendered: Rendered) -> None:
    pod = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    mounted = {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def host_folders(bodies: Rendered, container: str) -> dict[str, str]:
    pod = bodies.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    paths = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    mounts = bodies.container("DaemonSet", "ullage-node", container)["volumeMounts"]
    return {
        paths[m["name"]]: "read" if m.get("readOnly") else "write"
        for m in mounts
        if m["name"] in paths
    }


def test_nvidia_processes_are_looked_up_among_the_hosts(rendered: Rendered) -> None:
    container = rendered.container("DaemonSet", "ullage-node")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert environment(container)["ULLAGE_NODE_PATHS_PROC_ROOT"] == mounts["proc"]


@every_pod
def test_service_variables_are_kept_out(rendered: Rendered, kind: str, name: str) -> None:
    pod = rendered.one(kind, name)["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False


@every_pod
def test_memory_is_bounded_and_cpu_requested(rendered: Rendered, kind: str, name: str) -> None:
    resources = rendered.container(kind, name)["resources"]
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert resources["limits"].keys() == {"memory"}


def test_never_two_agents_on_one_node(rendered: Rendered) -> None:
    update = rendered.one("DaemonSet", "ullage-node")["spec"]["updateStrategy"]["rollingUpdate"]
    assert update == {"maxSurge": 0, "maxUnavailable": 1}


def test_agents_run_where_the_label_is_whatever_the_taints(rendered: Rendered) -> None:
    pod = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"ullage.dev/node": "true"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"


def test_an_eviction_never_takes_all_replicas(rendered: Rendered) -> None:
    budget = rendered.one("PodDisruptionBudget", "ullage-operator")["spec"]
    pod = rendered.one("Deployment", "ullage-operator")["spec"]["template"]
    assert (
        budget["maxUnavailable"] < rendered.one("Deployment", "ullage-operator")["spec"]["replicas"]
    )
    assert budget["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
