# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.cgroup_tree import CgroupTree
from ullage_node.devices.cgroups import (
    CgroupUnreadable,
    CgroupVersion,
    ContainerCgroup,
    cgroup_from_record,
    controller_paths,
    detect_version,
    format_cores,
    is_populated,
    machine_cores,
    parse_cores,
    pod_uid_of,
    read_cpu_time_ns,
    read_limits,
    read_memory_mib,
    read_pids,
)

UID = "0b54f1a2-3c4d-4e5f-8a9b-0c1d2e3f4a5b"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> CgroupTree:
    return CgroupTree(base=tmp_path, version=request.param).build()


def located(tree: CgroupTree, path: str) -> ContainerCgroup:
    if tree.version == 2:
        return ContainerCgroup(version=CgroupVersion.V2, paths={"": path})
    names = ("cpu", "cpuset", "cpuacct", "pids", "memory")
    return ContainerCgroup(version=CgroupVersion.V1, paths=dict.fromkeys(names, path))


def test_the_version_is_where_the_cpu_controller_is(tree: CgroupTree) -> None:
    assert detect_version(tree.paths.cgroup_root) == tree.version


def test_a_v2_hierarchy_without_the_cpu_controller_is_a_hybrid_host(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset hugetlb\n")
    assert detect_version(tmp_path) is CgroupVersion.V1


def test_paths_of_controllers_that_share_a_hierarchy_and_paths_with_colons() -> None:
    text = "12:pids:/a\n4:cpu,cpuacct:/kube/x:y\n1:name=systemd:/\n0::/unified\nnonsense\n:::\n"
    assert controller_paths(text) == {
        "pids": "/a",
        "cpu": "/kube/x:y",
        "cpuacct": "/kube/x:y",
        "name=systemd": "/",
        "": "/unified",
    }


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/besteffort/pod{UID}/8f3c",
        f"/node-a/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-8f3c.scope",
        f"/../../pod{UID}/8f3c",
    ],
)
def test_the_pod_of_a_cgroup_path_under_both_drivers(path: str) -> None:
    assert pod_uid_of(path) == UID


@pytest.mark.parametrize("path", ["/", "/system.slice/podman.service", "/kubepods", "/podcast/x"])
def test_a_path_outside_pods_has_no_pod(path: str) -> None:
    assert pod_uid_of(path) is None


def test_a_static_pod_has_a_uid_without_dashes() -> None:
    uid = "0123456789abcdef0123456789abcdef"
    assert pod_uid_of(f"/kubepods/pod{uid}/c") == uid


@given(st.frozensets(st.integers(min_value=0, max_value=300), min_size=1))
def test_a_list_of_cores_reads_back_as_it_was_written(cores: frozenset[int]) -> None:
    assert parse_cores(format_cores(cores)) == cores


def test_neighbouring_cores_are_spelled_as_the_kernel_spells_them() -> None:
    assert format_cores(frozenset({0, 1, 2, 5, 7, 8})) == "0-2,5,7-8"


@pytest.mark.parametrize("text", ["a", "0-", "-1", "0-b", "0;1"])
def test_a_list_of_cores_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(CgroupUnreadable, match="no list of cores"):
        parse_cores(text)


def test_the_machine_says_which_cores_it_has(tree: CgroupTree) -> None:
    assert machine_cores(tree.paths.cgroup_root) == {0, 1}


def test_a_machine_that_does_not_say_its_cores_is_not_guessed(tmp_path: Path) -> None:
    assert machine_cores(tmp_path) is None


def test_quota_is_given_per_period_of_ours(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    tree.set_quota(path, 10_000, 50_000)
    limits = read_limits(tree.paths.cgroup_root, located(tree, path))
    assert limits is not None
    assert (limits.quota_us, limits.effective_us, limits.cores) == (20_000, 20_000, "0-1")


def test_no_quota_is_unlimited(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    limits = read_limits(tree.paths.cgroup_root, located(tree, path))
    assert limits is not None
    assert (limits.quota_us, limits.effective_us) == (None, None)


def test_version_2_limits_around_the_container_count(tmp_path: Path) -> None:
    tree = CgroupTree(base=tmp_path, version=2).build()
    path = tree.create(UID, "c", 7, pod_limit_us=15_000)
    tree.set_quota(path, 40_000)
    limits = read_limits(tree.paths.cgroup_root, located(tree, path))
    assert limits is not None
    assert (limits.quota_us, limits.effective_us) == (40_000, 15_000)


def test_a_cgroup_that_is_gone_reads_as_nothing(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    tree.destroy(path)
    root, gone = tree.paths.cgroup_root, located(tree, path)
    assert read_limits(root, gone) is None
    assert not is_populated(root, gone)
    assert read_pids(root, gone) == ()
    assert read_cpu_time_ns(root, gone) == 0
    assert read_memory_mib(root, gone) == 0


def test_processes_hidden_by_a_process_namespace_still_count(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    tree.hide_pids(path)
    root, there = tree.paths.cgroup_root, located(tree, path)
    assert read_pids(root, there) == ()
    assert is_populated(root, there)


def test_an_empty_cgroup_is_not_populated(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    tree.set_pids(path, ())
    assert not is_populated(tree.paths.cgroup_root, located(tree, path))


def test_memory_is_the_working_set_without_idle_file_pages(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    tree.set_memory(path, 300 << 20, 100 << 20)
    assert read_memory_mib(tree.paths.cgroup_root, located(tree, path)) == 200


def test_cpu_time_is_in_nanoseconds(tree: CgroupTree) -> None:
    path = tree.create(UID, "c", 7)
    tree.set_cpu_time(path, 1_234_000)
    assert read_cpu_time_ns(tree.paths.cgroup_root, located(tree, path)) == 1_234_000


def test_text_where_a_number_belongs_is_an_error_that_names_it(tmp_path: Path) -> None:
    tree = CgroupTree(base=tmp_path, version=1).build()
    path = tree.create(UID, "c", 7)
    (tree.place("cpuacct", path) / "cpuacct.usage").write_text("many\n")
    with pytest.raises(CgroupUnreadable, match=r"cpuacct\.usage: 'many'"):
        read_cpu_time_ns(tree.paths.cgroup_root, located(tree, path))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"version": "3"}, "neither 1 nor 2"),
        ({}, "neither 1 nor 2"),
        ({"version": "2", "unified": "/../../etc"}, "no container's path"),
        ({"version": "2", "unified": "/"}, "no container's path"),
        ({"version": "2"}, "no container's path"),
        (
            {"version": "1", "cpu": "/a", "cpuset": "/a", "cpuacct": "/a", "pids": "/a"},
            "for memory",
        ),
    ],
)
def test_a_record_with_a_path_outside_its_hierarchy_is_refused(
    record: dict[str, str], text: str
) -> None:
    with pytest.raises(CgroupUnreadable, match=text):
        cgroup_from_record(record)
