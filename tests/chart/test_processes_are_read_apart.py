# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pod that reads whose processes are on a GPU: the host's numbers, and no other power."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from chart.rendered import Helm, Json, Rendered, environment
from chart.variants import VARIANTS
from ullage_node.devices.nvidia.host_processes import DIRECTORY
from ullage_node.settings import ApiSettings, PathSettings

MIG: Final = "ULLAGE_NODE_MIG_ENABLED"


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


def test_power_to_see_mig_devices_is_the_readers_and_on_demand(
    rendered: Rendered, helm: Helm
) -> None:
    seen = helm.values({"node": {"mig": {"enabled": True}}})
    before = rendered.container("DaemonSet", "ullage-processes")
    after = seen.container("DaemonSet", "ullage-processes")
    assert {"NVIDIA_MIG_MONITOR_DEVICES", MIG}.isdisjoint(environment(before))
    assert environment(after)["NVIDIA_MIG_MONITOR_DEVICES"] == "all"
    assert "add" not in before["securityContext"]["capabilities"]
    assert after["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert pod_of(seen)["automountServiceAccountToken"] is False
    agent = seen.container("DaemonSet", "ullage-node", "plugin")
    assert "NVIDIA_MIG_MONITOR_DEVICES" not in environment(agent)
    assert environment(agent)[MIG] == environment(after)[MIG] == "true"
    assert MIG not in environment(rendered.container("DaemonSet", "ullage-node", "plugin"))


def test_each_power_of_the_reader_is_given_for_what_it_is_for(helm: Helm) -> None:
    both = helm.values({"node": {"mig": {"enabled": True}, "checkpoint": {"enabled": True}}})
    one = helm.values({"node": {"checkpoint": {"enabled": True}}})
    for bodies, powers in ((both, ["SYS_PTRACE", "SYS_ADMIN"]), (one, ["SYS_PTRACE"])):
        container = bodies.container("DaemonSet", "ullage-processes")
        assert container["securityContext"]["capabilities"]["add"] == powers


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_container_with_a_token_has_any_power(helm: Helm, variant: str) -> None:
    """Whatever the values: who may read the API is not privileged and has no capability."""
    with_token = [
        container
        for kind in ("DaemonSet", "Deployment", "Job")
        for body in helm.template(*VARIANTS[variant]).all(kind)
        for container in with_a_token(body["spec"]["template"]["spec"])
    ]
    assert {container["name"] for container in with_token} >= {"operator", "plugin"}
    for container in with_token:
        assert not container["securityContext"].get("privileged"), container["name"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def with_a_token(pod: Json) -> Iterator[Json]:
    """Containers that can read the token of the pod's account."""
    tokens = {
        volume["name"]
        for volume in pod.get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    }
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        if pod.get("automountServiceAccountToken", True) or mounted & tokens:
            yield container


def test_the_agent_alone_gets_the_token_of_its_pod(rendered: Rendered) -> None:
    pod = rendered.one("DaemonSet", "ullage-node")["spec"]["template"]["spec"]
    assert {container["name"] for container in with_a_token(pod)} == {"plugin"}
    (plugin,) = with_a_token(pod)
    mounts = {mount["name"]: mount for mount in plugin["volumeMounts"]}
    folder = Path(mounts["api-access"]["mountPath"])
    (sources,) = (v["projected"]["sources"] for v in pod["volumes"] if v["name"] == "api-access")
    token, authority = sources
    settings = ApiSettings()
    assert folder / token["serviceAccountToken"]["path"] == settings.token_file
    assert folder / authority["configMap"]["items"][0]["path"] == settings.ca_file


def test_emulated_nodes_get_no_power_for_mig(helm: Helm) -> None:
    bodies = helm.values({"node": {"backend": "emulated", "mig": {"enabled": True}}})
    plugin = bodies.container("DaemonSet", "ullage-node", "plugin")
    assert plugin["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert MIG not in environment(plugin)
