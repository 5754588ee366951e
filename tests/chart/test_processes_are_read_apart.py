# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pod that reads whose processes are on a GPU: the host's numbers, and no other power."""

from __future__ import annotations

from chart.rendered import Helm, Json, Rendered, environment
from ullage_node.devices.nvidia.host_processes import DIRECTORY
from ullage_node.settings import PathSettings


def pod_of(rendered: Rendered) -> Json:
    pod: Json = rendered.one("DaemonSet", "ullage-processes")["spec"]["template"]["spec"]
    return pod


def test_it_has_the_hosts_numbers_one_folder_and_no_api(rendered: Rendered) -> None:
    pod = pod_of(rendered)
    assert pod["hostPID"] is True
    assert not {"hostNetwork", "hostIPC", "serviceAccountName", "initContainers"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["args"] == ["processes"]
    assert "ports" not in container
    (volume,) = pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == volume["hostPath"]["path"]
    assert mount["mountPath"] == str(PathSettings().run_dir / DIRECTORY)


def test_it_is_root_without_any_power(rendered: Rendered) -> None:
    (container,) = pod_of(rendered)["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_it_gets_the_drivers_library_and_nothing_to_compute_with(rendered: Rendered) -> None:
    (container,) = pod_of(rendered)["containers"]
    assert environment(container)["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_it_runs_where_the_agent_runs_one_at_a_time(rendered: Rendered) -> None:
    agent = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    pod = pod_of(rendered)
    for field in ("nodeSelector", "tolerations", "priorityClassName"):
        assert pod[field] == agent[field]
    update = rendered.one("DaemonSet", "ullage-processes")["spec"]["updateStrategy"]
    assert update["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_emulated_nodes_have_none(emulated: Rendered) -> None:
    assert {body["metadata"]["name"] for body in emulated.all("DaemonSet")} == {"ullage-node"}


def test_power_to_see_mig_devices_is_given_to_two_containers_and_on_demand(
    rendered: Rendered, helm: Helm
) -> None:
    seen = helm.values({"node": {"mig": {"enabled": True}}})
    for name, container in (("ullage-node", "plugin"), ("ullage-processes", "processes")):
        before = rendered.container("DaemonSet", name, container)
        after = seen.container("DaemonSet", name, container)
        assert "NVIDIA_MIG_MONITOR_DEVICES" not in environment(before)
        assert environment(after)["NVIDIA_MIG_MONITOR_DEVICES"] == "all"
        assert "add" not in before["securityContext"]["capabilities"]
        assert after["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    guard = seen.container("DaemonSet", "ullage-node", "guard")
    assert guard["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_emulated_nodes_get_no_power_for_mig(helm: Helm) -> None:
    bodies = helm.values({"node": {"backend": "emulated", "mig": {"enabled": True}}})
    plugin = bodies.container("DaemonSet", "ullage-node", "plugin")
    assert plugin["securityContext"]["capabilities"] == {"drop": ["ALL"]}
