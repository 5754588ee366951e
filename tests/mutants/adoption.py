# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of adopted pods: what their keys ask for, their life, the status that they hold."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

PROJECTION: Final = "operator/ullage/cluster/projection/adopted.py"
LIFE: Final = "operator/ullage/scheduling/lifecycle/adopted.py"
WEBHOOK: Final = "operator/ullage/webhook/mutation.py"
SERVER: Final = "operator/ullage/webhook/server.py"
REVIEW: Final = "operator/ullage/webhook/review.py"
STATUS: Final = "operator/ullage/cluster/codecs/pod_status.py"

PROJECTED: Final = ("tests/unit/cluster/test_labelled_pods_become_workloads.py",)
LIVES: Final = (
    "tests/unit/scheduling/test_adopted_pods_are_placed.py",
    "tests/unit/scheduling/test_adopted_pods_in_any_order.py",
)
STORED: Final = (*PROJECTED, *LIVES)
RUNS: Final = ("tests/unit/cluster/test_a_gang_is_of_one_run.py",)
GANGS: Final = "operator/ullage/cluster/cache/adopted.py"
MUTATED: Final = ("tests/unit/webhook/test_the_webhook_prepares_pods_as_the_policy_does.py",)
REVIEWED: Final = ("tests/unit/webhook/test_the_webhook_answers_reviews_within_bounds.py",)

MUTANTS: Final = (
    Mutant(
        "a run with as many pods as its gang counts is a gang of its own",
        GANGS,
        "len(pods) >= adopted.terms.replicas > 1",
        "len(pods) > adopted.terms.replicas > 1",
        RUNS,
    ),
    Mutant(
        "a run is over with its last pod",
        GANGS,
        "            self._whole.discard(run)\n",
        "            pass\n",
        RUNS,
    ),
    Mutant(
        "pods of a run that is over count for no one",
        "operator/ullage/cluster/records/workload.py",
        "return sum(controller in live for controller in ended) % size",
        "return sum(bool(live) for _ in ended) % size",
        RUNS,
    ),
    Mutant(
        "a whole wave is over",
        "operator/ullage/cluster/records/workload.py",
        "return sum(controller in live for controller in ended) % size",
        "return sum(controller in live for controller in ended)",
        RUNS,
    ),
    Mutant(
        "each revision of a Deployment is a gang",
        PROJECTION,
        '_ONE_REVISION: Final = ("apps", "ReplicaSet")',
        '_ONE_REVISION: Final = ("apps", "Deployment")',
        RUNS,
    ),
    Mutant(
        "pods of one revision agree",
        GANGS,
        "return adopted.revision != lead.revision and (same_slots or not adopted.gated)",
        "return same_slots or not adopted.gated",
        RUNS,
    ),
    Mutant(
        "a pod asks for a share or for devices",
        PROJECTION,
        "if share is not None and devices is not None:",
        'if share is not None and devices == "":',
        PROJECTED,
    ),
    Mutant(
        "a lane says its memory itself",
        PROJECTION,
        "    if AdoptionKey.MEMORY in values:\n",
        "    if AdoptionKey.MEMORY not in values and not memory:\n",
        PROJECTED,
    ),
    Mutant(
        "a gang has no more pods than a gang may have",
        PROJECTION,
        "if not 1 <= count <= MOST_PODS:",
        "if count < 1:",
        PROJECTED,
    ),
    Mutant(
        "a pod that lost no gate of ours is not placed",
        PROJECTION,
        "if not record.node and GATE not in record.gates and not record.stage.finished:",
        "if record.node and not record.stage.finished and GATE in record.gates:",
        PROJECTED,
    ),
    Mutant(
        "only the device container has slots",
        PROJECTION,
        "if slots != wanted:",
        "if slots < wanted:",
        PROJECTED,
    ),
    Mutant(
        "a gang is of one namespace",
        PROJECTION,
        'f"gang/{meta.namespace}/{gang}"',
        'f"gang/{gang}"',
        PROJECTED,
    ),
    Mutant(
        "a pod has one objective",
        PROJECTION,
        "    elif slowdown is not None:\n",
        '    elif slowdown == "":\n',
        PROJECTED,
    ),
    Mutant(
        "without a domain a pod shares inside its namespace",
        PROJECTION,
        "trust_domain=domain or default_trust_domain(meta.namespace),",
        "trust_domain=domain,",
        PROJECTED,
    ),
    Mutant(
        "a size without a gang is refused",
        PROJECTION,
        'raise _wrong(AdoptionKey.GANG_SIZE, size, "no gang is named")',
        "return _number(size)",
        PROJECTED,
    ),
    Mutant(
        "a percentile without a latency is refused",
        PROJECTION,
        "        for key in (AdoptionKey.PERCENTILE, AdoptionKey.METRIC):",
        "        for key in (AdoptionKey.METRIC,):",
        PROJECTED,
    ),
    Mutant(
        "a class may stand in a label",
        PROJECTION,
        "        values[AdoptionKey.CLASS] = meta.labels[AdoptionKey.CLASS.key]",
        "        values.setdefault(AdoptionKey.CLASS, meta.labels[AdoptionKey.CLASS.key])",
        PROJECTED,
    ),
    Mutant(
        "a pod without a controller is not evicted",
        LIFE,
        "if member.pod.controlled or unit.checkpoint:",
        "if member.pod.controlled or unit.checkpoint or member.live:",
        LIVES,
    ),
    Mutant(
        "a pod that saves its work may be evicted",
        LIFE,
        "if member.pod.controlled or unit.checkpoint:",
        "if member.pod.controlled:",
        LIVES,
    ),
    Mutant(
        "pods that ended well are not waited for",
        LIFE,
        "wanted = unit.replicas - len(let_go) - ended_well(unit, everyone)",
        "wanted = unit.replicas - len(let_go)",
        LIVES,
    ),
    Mutant(
        "a gang waits until all of its pods exist",
        LIFE,
        "    if len(gated) < wanted:",
        "    if len(gated) < 0 * wanted:",
        LIVES,
    ),
    Mutant(
        "a pod too many waits",
        LIFE,
        "return advance(view, inventory, unit, [*let_go, *gated[:wanted]])",
        "return advance(view, inventory, unit, [*let_go, *gated])",
        LIVES,
    ),
    Mutant(
        "what an incomplete gang holds is given back",
        LIFE,
        "            release=tuple(member for member in gated if member.held),",
        "            release=(),",
        LIVES,
    ),
    Mutant(
        "who has a place comes first",
        LIFE,
        "(not member.held, member.pod.created, member.pod.name)",
        "(bool(member.held), member.pod.created, member.pod.name)",
        LIVES,
    ),
    Mutant(
        "a device that failed a pod is left out for the next",
        LIFE,
        "passed_over=Passed(reason=trouble.reason, device=trouble.device, message=trouble"
        ".message),",
        "passed_over=Passed(reason=trouble.reason, device=None, message=trouble.message),",
        LIVES,
    ),
    Mutant(
        "a pod that cannot be read holds nothing",
        LIFE,
        "            release=tuple(member for member in members if member.gated and member.held),",
        "            release=(),",
        LIVES,
    ),
    Mutant(
        "an annotation that is too long was not ours",
        STATUS,
        "if not annotation or len(annotation) > MOST_BYTES:",
        "if not annotation:",
        STORED,
    ),
    Mutant(
        "the newest devices left out are kept",
        STATUS,
        "for exclusion in scheduling.exclusions[-MOST_EXCLUSIONS:]",
        "for exclusion in scheduling.exclusions[:MOST_EXCLUSIONS]",
        STORED,
    ),
    Mutant(
        "the oldest is dropped where there is no room",
        STATUS,
        "exclusions=excluded[1:]",
        "exclusions=excluded[:-1]",
        STORED,
    ),
    Mutant(
        "deep JSON harms no one",
        STATUS,
        "except (ValueError, RecursionError):",
        "except ValueError:",
        STORED,
    ),
    Mutant(
        "conditions of others are not ours",
        STATUS,
        "if isinstance(type_, str) and type_.startswith(CONDITION_PREFIX):",
        "if isinstance(type_, str):",
        STORED,
    ),
    Mutant(
        "no API server is sent a generation that it does not know",
        STATUS,
        '            body.pop("observedGeneration", None)\n',
        "",
        STORED,
    ),
    Mutant(
        "the place of a pod stands in its condition",
        STATUS,
        "if decision.reason is Reason.PLACED:",
        "if decision.reason is Reason.COMPLETED:",
        STORED,
    ),
    Mutant(
        "what is kept in a pod is short",
        STATUS,
        "replace(exclusion, message=exclusion.message[:_TEXT])",
        "replace(exclusion, message=exclusion.message)",
        STORED,
    ),
    Mutant(
        "conditions that a pod has anyway are not repeated",
        STATUS,
        "    for type_ in SHOWN:\n        condition = status.condition(type_)\n        if"
        " condition is not None:",
        "    for type_ in ConditionType:\n        condition = status.condition(type_)\n  "
        "      if condition is not None:",
        STORED,
    ),
    Mutant(
        "the webhook leaves pods without our labels alone",
        WEBHOOK,
        'if not asks_to_share(section(metadata, "labels")):',
        'if asks_to_share(section(metadata, "labels")) and not metadata:',
        MUTATED,
    ),
    Mutant(
        "our gate stands once",
        WEBHOOK,
        'if any(gate.get("name") == GATE for gate in gates):',
        "if not gates and GATE in spec:",
        MUTATED,
    ),
    Mutant(
        "gates of others stay",
        WEBHOOK,
        '*_present(spec, "schedulingGates", ("spec",), []),',
        '*_present({}, "schedulingGates", ("spec",), []),',
        MUTATED,
    ),
    Mutant(
        "the container that is named gets the slots",
        WEBHOOK,
        "index = names.index(chosen)",
        "index = 0 * names.index(chosen)",
        MUTATED,
    ),
    Mutant(
        "slots are as many as devices",
        WEBHOOK,
        'return devices if _DEVICES.fullmatch(devices) else "1"',
        'return "1" if _DEVICES.fullmatch(devices) else "1"',
        MUTATED,
    ),
    Mutant(
        "a review of anything but a new pod changes nothing",
        REVIEW,
        'if not is_pod or request.get("subResource") or request.get("operation") != "CREATE":',
        'if not is_pod or request.get("subResource"):',
        REVIEWED,
    ),
    Mutant(
        "one review is bounded",
        SERVER,
        "if len(body) + len(chunk) > MOST_BYTES:",
        "if len(body) + len(chunk) > 2 * MOST_BYTES:",
        REVIEWED,
    ),
    Mutant(
        "all reviews together are bounded",
        SERVER,
        "if self._held_bytes + len(chunk) > MOST_HELD_BYTES:",
        "if len(chunk) > MOST_HELD_BYTES:",
        REVIEWED,
    ),
)
