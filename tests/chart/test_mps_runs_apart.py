# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The one privileged pod of the product: there for GPUs only, apart from the agent, and narrow."""

from __future__ import annotations

from chart.rendered import Helm, Json, Rendered, environment


def pod_of(rendered: Rendered) -> Json:
    pod: Json = rendered.one("DaemonSet", "ullage-mps")["spec"]["template"]["spec"]
    return pod


def test_it_sees_one_folder_and_the_hosts_processes_and_no_api(rendered: Rendered) -> None:
    pod = pod_of(rendered)
    assert pod["hostPID"] is True
    assert not {"hostNetwork", "hostIPC", "serviceAccountName"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    (volume,) = pod["volumes"]
    assert volume["hostPath"]["path"] == "/run/ullage/mps"
    (container,) = pod["containers"]
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == volume["hostPath"]["path"], "daemon and client mean one path"
    assert mount["mountPropagation"] == "Bidirectional"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "ports" not in container


def test_the_agent_stays_without_the_hosts_processes(rendered: Rendered) -> None:
    agent: Json = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    assert "hostPID" not in agent
    for container in agent["containers"]:
        assert not container["securityContext"].get("privileged")


def test_an_upgrade_leaves_running_servers_alone(rendered: Rendered) -> None:
    spec = rendered.one("DaemonSet", "ullage-mps")["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= 30


def test_it_runs_where_the_agent_runs(rendered: Rendered) -> None:
    agent = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    pod = pod_of(rendered)
    for field in ("nodeSelector", "tolerations", "priorityClassName"):
        assert pod[field] == agent[field]
    (container,) = pod["containers"]
    assert container["image"] == agent["containers"][0]["image"]
    assert container["args"] == ["mps"]
    assert "compute" in environment(container)["NVIDIA_DRIVER_CAPABILITIES"]


def test_memory_is_bounded_and_cpu_requested(rendered: Rendered) -> None:
    (container,) = pod_of(rendered)["containers"]
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert container["resources"]["limits"].keys() == {"memory"}


def test_it_is_not_there_without_gpus_or_when_switched_off(emulated: Rendered, helm: Helm) -> None:
    off = helm.template("--set", "node.mps.enabled=false")
    for bodies in (emulated, off):
        names = {body["metadata"]["name"] for body in bodies.all("DaemonSet")}
        assert "ullage-mps" not in names
