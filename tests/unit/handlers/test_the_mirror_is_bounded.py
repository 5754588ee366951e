# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever tenants write, kopf is shown few objects, the newest state of each, and every end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.cluster.values.lives import FINALIZER, MOST_OF_NAMESPACE
from ullage.cluster.values.streams import INFERENCE_DEPLOYMENTS, NODES
from ullage.handlers.mirror import MOST_FINALIZERS, Mirror
from ullage.ports import INFERENCE_DEPLOYMENT, JsonObject

KIND = INFERENCE_DEPLOYMENT


def mirror() -> Mirror:
    return Mirror({KIND: lambda item: bool(item.get("spec"))})


def an_object(number: int, *, cared_for: bool = True, **metadata: object) -> dict[str, Any]:
    return {
        "metadata": {"name": f"o{number}", "namespace": "team", "uid": f"u{number}", **metadata},
        "spec": {"batching": {}} if cared_for else {},
    }


def shown(kept: Mirror) -> set[object]:
    return {body["metadata"]["uid"] for body in kept._kinds[KIND].bodies.values()}  # type: ignore[index]


def test_a_namespace_has_its_bound_and_those_held_already_are_shown_beyond_it() -> None:
    kept = mirror()
    for number in range(MOST_OF_NAMESPACE + 10):
        kept.upsert(KIND, an_object(number))
    assert len(shown(kept)) == MOST_OF_NAMESPACE
    held = an_object(9_999, finalizers=[FINALIZER])
    kept.upsert(KIND, held)
    assert "u9999" in shown(kept)
    kept.upsert(KIND, an_object(1, cared_for=False))
    kept.remove(KIND, held)
    kept.upsert(KIND, an_object(MOST_OF_NAMESPACE + 5))
    assert f"u{MOST_OF_NAMESPACE + 5}" in shown(kept)


def test_an_object_with_many_finalizers_of_others_gets_none_of_ours() -> None:
    kept = mirror()
    kept.upsert(KIND, an_object(1, finalizers=[f"other/{n}" for n in range(MOST_FINALIZERS + 1)]))
    assert shown(kept) == set()


def test_a_storm_of_edits_is_one_change_and_specs_and_annotations_are_not_kept() -> None:
    kept = mirror()
    kept.listed(KIND)
    for number in range(1_000):
        notes = {"other": "x" * 100_000, "life.ullage.dev/step": "1"}
        kept.upsert(KIND, an_object(1, resourceVersion=str(number), annotations=notes))
    change = kept.change(KIND)
    assert change is not None
    assert kept.change(KIND) is None
    assert "spec" not in change.body
    metadata = change.body["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["resourceVersion"] == "999"
    assert "annotations" not in metadata


def test_a_list_is_read_item_by_item_and_only_lives_of_it_are_kept() -> None:
    kept, alive = mirror(), 0

    class Item(dict[str, object]):
        """Counts those that are held at one time."""

        def __init__(self, body: dict[str, object]) -> None:
            nonlocal alive
            super().__init__(body)
            alive += 1
            assert alive <= 2

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    class Packed(list[int]):
        """Decodes what is read, as a list of a reflector does."""

        def __iter__(self) -> Iterator[Item]:  # type: ignore[override]
            bodies = (an_object(n, cared_for=n == 7) for n in super().__iter__())
            return (Item(body) for body in bodies)

    kept.upsert(KIND, an_object(500))
    kept.replace(KIND, Packed(range(100)))  # type: ignore[arg-type]
    assert shown(kept) == {"u7"}


def test_changes_are_kept_for_who_has_listed_and_forgotten_when_no_one_watches() -> None:
    kept = mirror()
    with pytest.raises(LookupError, match="were not listed"):
        kept.change(KIND)
    kept.upsert(KIND, an_object(1))
    kept.listed(KIND)
    kept.remove(KIND, an_object(1))
    kept.upsert(KIND, an_object(2))
    first, second = kept.change(KIND), kept.change(KIND)
    assert (first and first.deleted, second and second.deleted) == (True, False)
    kept.remove(KIND, an_object(2))
    kept.rest()
    with pytest.raises(LookupError, match="were not listed"):
        kept.change(KIND)


def test_who_is_edited_all_the_time_waits_no_longer_for_it() -> None:
    kept = mirror()
    kept.listed(KIND)
    for number in range(3):
        kept.upsert(KIND, an_object(number))
    kept.upsert(KIND, an_object(0, resourceVersion="9"))
    change = kept.change(KIND)
    assert change is not None
    metadata = change.body["metadata"]
    assert isinstance(metadata, dict)
    assert (metadata["uid"], metadata["resourceVersion"]) == ("u0", "9")


def names(kept: Mirror) -> set[str]:
    return {ref.uid for ref in kept.unheld()}


def test_objects_beyond_the_bound_are_known_until_there_is_room_or_they_are_gone() -> None:
    kept = mirror()
    for number in range(MOST_OF_NAMESPACE + 3):
        kept.upsert(KIND, an_object(number))
    beyond = [f"u{MOST_OF_NAMESPACE + number}" for number in range(3)]
    assert names(kept) == set(beyond)
    kept.remove(KIND, an_object(MOST_OF_NAMESPACE))
    kept.upsert(KIND, an_object(MOST_OF_NAMESPACE + 1, cared_for=False))
    assert names(kept) == {beyond[2]}
    kept.remove(KIND, an_object(0))
    kept.upsert(KIND, an_object(MOST_OF_NAMESPACE + 2, resourceVersion="2"))
    assert names(kept) == set()
    kept.upsert(KIND, an_object(9_999))
    assert names(kept) == {"u9999"}
    kept.replace(KIND, [an_object(number) for number in range(MOST_OF_NAMESPACE)])
    assert names(kept) == set()


def test_other_kinds_pass_it_by() -> None:
    class Sink:
        def upsert(self, *_: object) -> bool:
            return True

    kept, sink = mirror(), Sink()
    assert kept.tee(NODES, sink) is sink  # type: ignore[arg-type, comparison-overlap]
    tee = kept.tee(INFERENCE_DEPLOYMENTS, sink)  # type: ignore[arg-type]
    assert tee.upsert(INFERENCE_DEPLOYMENTS, an_object(1), 0.0)
    assert shown(kept) == {"u1"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["upsert", "remove", "replace", "read"]),
            st.integers(0, 3),
            st.booleans(),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_who_lists_once_and_watches_knows_what_a_list_shows(
    events: list[tuple[str, int, bool, bool]],
) -> None:
    kept = mirror()
    truth: dict[str, JsonObject] = {}
    kept.listed(KIND)
    known: dict[str, JsonObject] = {}

    def read() -> None:
        while (change := kept.change(KIND)) is not None:
            uid = change.body["metadata"]["uid"]  # type: ignore[index]
            if change.deleted:
                known.pop(uid, None)
            else:
                known[uid] = change.body

    for count, (event, number, cared_for, held) in enumerate(events):
        finalizers = [FINALIZER] if held else []
        item = an_object(
            number, cared_for=cared_for, resourceVersion=str(count), finalizers=finalizers
        )
        uid = f"u{number}"
        if event == "upsert":
            truth[uid] = item
            kept.upsert(KIND, item)
        elif event == "remove":
            truth.pop(uid, None)
            kept.remove(KIND, item)
        elif event == "replace":
            truth.clear()
            truth[uid] = item
            kept.replace(KIND, [item])
        else:
            read()
    read()
    expected = {
        uid
        for uid, item in truth.items()
        if item["spec"] or item["metadata"]["finalizers"]  # type: ignore[index]
    }
    assert known.keys() == shown(kept) == expected
    bodies = kept.listed(KIND)
    assert known == {body["metadata"]["uid"]: body for body in bodies}  # type: ignore[index]
