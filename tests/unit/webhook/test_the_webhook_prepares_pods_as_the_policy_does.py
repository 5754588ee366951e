# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the webhook adds to a pod, by the table that holds for the chart's policy, too."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitted_pods import ADOPTED, CASES, GATE, MARKS, SHARE, Case, Json, generated, new_pod, parts
from fakes.apiserver.patches import json_patch
from ullage.api.readers import WireError
from ullage.webhook.mutation import mutation


def prepared(pod: Json) -> Json:
    return dict(json_patch(copy.deepcopy(pod), mutation(pod)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_pod_of_the_table_gets_what_the_table_says(case: Case) -> None:
    assert parts(prepared(case.pod)) == case.after


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_else_is_changed(case: Case) -> None:
    after = prepared(case.pod)
    assert {**after, "metadata": 0, "spec": 0} == {**case.pod, "metadata": 0, "spec": 0}
    for name in ("labels", "annotations"):
        after["metadata"].pop(name, None)
    assert after["metadata"].items() <= case.pod["metadata"].items()
    after["spec"].pop("schedulingGates", None)
    before = {key: value for key, value in case.pod["spec"].items() if key != "schedulingGates"}
    assert after["spec"].keys() == before.keys()
    for container, old in zip(after["spec"]["containers"], before["containers"], strict=True):
        for kind, amounts in container.pop("resources", {}).items():
            kept = {k: v for k, v in amounts.items() if k != "ullage.dev/slot"}
            was = old.get("resources", {}).get(kind, {})
            assert kept == {k: v for k, v in was.items() if k != "ullage.dev/slot"}
        assert container.items() <= old.items()


@pytest.mark.parametrize("seed", range(3))
def test_a_pod_that_comes_again_is_not_changed_again(seed: int) -> None:
    """Other webhooks may make the API server ask twice (``reinvocationPolicy: IfNeeded``)."""
    for pod in generated(200, seed):
        once = prepared(pod)
        assert prepared(once) == once


def test_a_pod_on_a_node_gets_no_gate_so_that_the_policy_can_say_what_to_write() -> None:
    """The API server takes no gate beside spec.nodeName and says so before any policy is asked."""
    found = parts(prepared(new_pod(SHARE, nodeName="node-2")))
    assert (found.gates, found.slots) == ([], {"main": ("1", "1")})


def test_labels_decide_and_nothing_else() -> None:
    for pod in generated(300, seed=7):
        asks = {"ullage.dev/share", "ullage.dev/devices"} & pod["metadata"]["labels"].keys()
        assert bool(mutation(pod)) == bool(asks)
        if asks:
            found = parts(prepared(pod))
            assert MARKS.items() <= found.labels.items()
            assert ADOPTED.items() <= found.annotations.items()
            assert found.gates[-1] == GATE
            assert len(found.slots) == 1


@pytest.mark.parametrize("devices", ["", "x", "-1", "1.5", "100", "²", "١", "1\n"])
def test_a_number_that_is_none_leaves_the_pod_readable(devices: str) -> None:
    found = parts(prepared(new_pod({"ullage.dev/devices": devices})))
    assert found.slots == {"main": ("1", "1")}


def test_a_container_that_is_not_there_gets_no_slot() -> None:
    found = parts(prepared(new_pod(SHARE, {"ullage.dev/container": "nobody"})))
    assert (found.slots, found.gates) == ({}, [GATE])
    assert parts(prepared(new_pod(SHARE, containers=[]))).slots == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=3,
)


@given(json_values, json_values, json_values, json_values)
def test_a_wild_pod_is_patched_or_said_to_be_unreadable(
    notes: object, gates: object, resources: object, labels: object
) -> None:
    pod = new_pod({**SHARE, **(labels if isinstance(labels, dict) else {})}, schedulingGates=gates)
    pod["metadata"]["annotations"] = notes
    pod["spec"]["containers"][0]["resources"] = resources
    try:
        patch = mutation(pod)
    except WireError:
        return
    assert parts(dict(json_patch(pod, patch))).gates[-1:] == [GATE]
