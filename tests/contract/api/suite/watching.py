# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lists, selectors, watches, discovery, and what a client may ask about itself."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from contract.api.suite.world import World, a_job, a_pod, case, version
from ullage.kube.self_test import check_crds, check_permissions, identity
from ullage.ports import GPU_NODE, POD, TRAINING_JOB, Gone, Selector


async def some_nodes(w: World, count: int) -> list[str]:
    names = [w.name(f"gn{i}") for i in range(count)]
    for name in names:
        await w.create(
            GPU_NODE,
            {"metadata": {"name": name, "labels": {"tag": w.tag}}, "spec": {"epoch": 1}},
        )
    return names


@case
async def a_list_comes_in_pages_of_one_version(w: World) -> None:
    names = await some_nodes(w, 5)
    mine = Selector(labels=f"tag={w.tag}")
    sizes, versions = [], set()
    pages = w.cluster.list_paged(GPU_NODE, mine, limit=2)
    async with aclosing(pages):
        async for page in pages:
            sizes.append(len(page.items))
            versions.add(page.resource_version)
            if len(sizes) == 1:
                await w.delete(GPU_NODE, names[4])
    assert sizes == [2, 2, 1]
    assert len(versions) == 1
    assert (await w.listed(GPU_NODE, mine))[0] == names[:4]


@case
async def a_past_version_can_be_listed(w: World) -> None:
    names = await some_nodes(w, 3)
    mine = Selector(labels=f"tag={w.tag}")
    _, then = await w.listed(GPU_NODE, mine)
    await w.delete(GPU_NODE, names[0])
    await w.patch(GPU_NODE, names[1], {"op": "remove", "path": "/metadata/labels"})
    assert (await w.listed(GPU_NODE, mine, limit=2, version=then)) == (names, then)
    assert (await w.listed(GPU_NODE, mine))[0] == names[2:]


@case
async def label_selectors_know_sets_and_absence(w: World) -> None:
    for stem, label in (("a", {"k": "1"}), ("b", {"k": "2"}), ("c", {})):
        body = a_pod(w.name(stem))
        body["metadata"]["labels"] = {"tag": w.tag, **label}
        await w.create(POD, body)
    expected = {
        "k=1": ["a"],
        "k==1": ["a"],
        "k!=1": ["b", "c"],
        "k": ["a", "b"],
        "!k": ["c"],
        "k in (1, 2)": ["a", "b"],
        "k notin (1)": ["b", "c"],
    }
    for text, stems in expected.items():
        names, _ = await w.listed(POD, Selector(labels=f"tag={w.tag},{text}"))
        assert names == [w.name(stem) for stem in stems], text


@case
async def a_list_and_a_watch_may_keep_to_one_namespace(w: World) -> None:
    here, elsewhere = Selector(namespace=w.namespace), Selector(namespace="elsewhere")
    _, start = await w.listed(POD, here)
    await w.create(POD, a_pod(w.name("pod")))
    assert w.name("pod") in (await w.listed(POD, here))[0]
    assert w.name("pod") not in (await w.listed(POD, elsewhere))[0]
    (event,) = await w.events(POD, here, start, 1)
    assert event.type == "ADDED"


@case
async def a_field_selector_finds_bound_pods(w: World) -> None:
    await w.create(POD, a_pod(w.name("free")))
    await w.create(POD, a_pod(w.name("bound"), gates=(), nodeName="node-x"))
    mine = "ullage.dev/managed=true"
    bound, _ = await w.listed(POD, Selector(labels=mine, fields="spec.nodeName!="))
    assert w.name("bound") in bound
    assert w.name("free") not in bound


@case
async def a_watch_tells_what_happened_since(w: World) -> None:
    _, start = await w.listed(TRAINING_JOB, Selector())
    name = w.name("job")
    body = a_job(name)
    body["metadata"]["labels"] = {"tag": w.tag}
    await w.create(TRAINING_JOB, body)
    changed = await w.patch(TRAINING_JOB, name, {"op": "add", "path": "/spec/replicas", "value": 2})
    await w.delete(TRAINING_JOB, name)
    seen = await w.events(TRAINING_JOB, Selector(labels=f"tag={w.tag}"), start, 3)
    assert [event.type for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[1].object == changed
    assert int(version(seen[2].object)) > int(version(changed))


@case
async def an_object_that_leaves_the_selection_is_deleted_for_the_watcher(w: World) -> None:
    (name,) = await some_nodes(w, 1)
    mine = Selector(labels=f"tag={w.tag}")
    _, start = await w.listed(GPU_NODE, mine)
    label = {"op": "replace", "path": "/metadata/labels/tag", "value": "other"}
    await w.patch(GPU_NODE, name, label)
    await w.patch(GPU_NODE, name, {**label, "value": w.tag})
    seen = await w.events(GPU_NODE, mine, start, 2)
    assert [event.type for event in seen] == ["DELETED", "ADDED"]


@case
async def a_change_without_effect_is_no_event(w: World) -> None:
    (name,) = await some_nodes(w, 1)
    _, start = await w.listed(GPU_NODE, Selector(labels=f"tag={w.tag}"))
    await w.patch(GPU_NODE, name, {"op": "replace", "path": "/spec/epoch", "value": 1})
    await w.patch(GPU_NODE, name, {"op": "replace", "path": "/spec/epoch", "value": 2})
    (event,) = await w.events(GPU_NODE, Selector(labels=f"tag={w.tag}"), start, 1)
    spec = event.object["spec"]
    assert isinstance(spec, dict)
    assert spec["epoch"] == 2


@case
async def a_watch_ends_by_itself_with_a_bookmark(w: World) -> None:
    await some_nodes(w, 1)
    mine = Selector(labels=f"tag={w.tag}")
    _, start = await w.listed(GPU_NODE, mine)
    stream = w.cluster.watch(GPU_NODE, mine, resource_version=start, timeout_s=1)
    async with aclosing(stream):
        kinds = [event.type async for event in stream]
    assert set(kinds) <= {"BOOKMARK"}


@case
async def a_watch_from_the_beginning_of_time_is_gone(w: World) -> None:
    with pytest.raises(Gone):
        await w.events(GPU_NODE, Selector(), "1", 1)


@case
async def our_kinds_are_served(w: World) -> None:
    await check_crds(w.cluster)
    assert await w.cluster.served("nothing.invalid/v1") == frozenset()
    assert "pods" in await w.cluster.served("v1")


@case
async def a_client_may_ask_who_it_is_and_what_it_may(w: World) -> None:
    user = await identity(w.cluster)
    assert user
    await check_permissions(w.cluster, user=user, namespace=w.namespace)
