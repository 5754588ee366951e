# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of scaling by objective: what is never done on missing data, and in which order."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

LIFECYCLE: Final = "operator/ullage/scheduling/lifecycle"
ENGINE: Final = "operator/ullage/engines/scaling"

REPLICAS: Final = ("tests/unit/scheduling/test_replicas_follow_the_objective.py",)
BINS: Final = ("tests/unit/engines/scaling/test_bins_are_followed.py",)
DAY: Final = ("tests/unit/engines/scaling/test_a_day_is_remembered.py",)
SHARE: Final = ("tests/unit/engines/scaling/test_replicas_of_another_share.py",)
ACCELERATOR: Final = (
    "tests/unit/scheduling/test_the_accelerator_of_a_service_follows_its_objective.py",
)
SLEEPS: Final = ("tests/unit/scheduling/test_an_idle_service_has_no_replica.py",)
SLEEPING: Final = ("tests/unit/engines/scaling/test_sleeps_pay_and_lose_no_request.py",)
ROUTERS: Final = ("tests/unit/app/test_routers_are_asked_what_waits.py",)
SCHEMAS: Final = ("tests/unit/api/test_rules_refuse_what_they_say.py",)
LOADS: Final = ("tests/unit/node/telemetry/test_loads_of_replicas.py",)

HEADROOM: Final = ("tests/unit/scheduling/test_training_uses_the_headroom_of_services.py",)
SPREAD: Final = ("tests/unit/scheduling/test_replicas_are_spread_over_spot_pools.py",)
PLACEMENT: Final = "operator/ullage/scheduling/placement"
PREDICTION: Final = "operator/ullage/scheduling/prediction"

MUTANTS: Final = (
    Mutant(
        "neighbours are judged at the load that is planned for",
        f"{PREDICTION}/latency.py",
        "load = planned.of_each(replicas, cv2=cv2, recent=recent)",
        "load = load or planned.of_each(replicas, cv2=cv2, recent=recent)",
        HEADROOM,
    ),
    Mutant(
        "a load that is too much bars no replica",
        f"{PREDICTION}/latency.py",
        "if limit.reason is not Reason.LOAD_INFEASIBLE:",
        "if True:",
        HEADROOM,
    ),
    Mutant(
        "strangers of equal priority keep their devices",
        f"{PLACEMENT}/attempt.py",
        "bool(self.lent_by) and victim.lent_by == self.lent_by",
        "bool(self.lent_by)",
        HEADROOM,
    ),
    Mutant(
        "who was promised something keeps its devices",
        f"{PLACEMENT}/preemption.py",
        "and job.max_slowdown is None",
        "and True",
        HEADROOM,
    ),
    Mutant(
        "what is given back goes to the replica",
        "operator/ullage/scheduling/assignment/nominate.py",
        "since=min(created, lent)",
        "since=created",
        HEADROOM,
    ),
    Mutant(
        "no one leaves without whom a replica is as slow",
        "operator/ullage/scheduling/assignment/peaks.py",
        ">= replica.predicted - TOLERANCE:",
        "> 1e9:",
        HEADROOM,
    ),
    Mutant(
        "a replica goes to the pool of which least is lost",
        "operator/ullage/engines/capacity/spread.py",
        "(held.get(name, 0) + 1) * fraction",
        "fraction",
        SPREAD,
    ),
    Mutant(
        "a replacement is asked for where training makes way",
        f"{LIFECYCLE}/surge.py",
        "or clearing_s(view, service) is not None",
        "",
        SPREAD,
    ),
    Mutant(
        "while some replicas report nothing none is taken away",
        f"{LIFECYCLE}/scaling.py",
        "    if load.missing:",
        "    if False:",
        REPLICAS,
    ),
    Mutant(
        "replicas that serve all the time stay",
        f"{LIFECYCLE}/scaling.py",
        "min(busy, service.replicas)",
        "0",
        REPLICAS,
    ),
    Mutant(
        "people may set the number while the load is not known",
        f"{LIFECYCLE}/scaling.py",
        "if standing is None or standing.reason is Reason.LOAD_UNKNOWN:",
        "if standing is None:",
        REPLICAS,
    ),
    Mutant(
        "a node that is silent says nothing of the load",
        f"{LIFECYCLE}/service_load.py",
        "abs(view.now - record.heartbeat) <= LOAD_STALE_S",
        "True",
        REPLICAS,
    ),
    Mutant(
        "after a gap needs start again",
        f"{ENGINE}/following.py",
        "needs = memory.needs if follows else ()",
        "needs = memory.needs",
        BINS,
    ),
    Mutant(
        "a load that came once raises a slot by half at most",
        f"{ENGINE}/season.py",
        "means[slot] = min(mean, MOST_GROWTH * before) if before > 0 else newest",
        "means[slot] = mean if before > 0 else newest",
        DAY,
    ),
    Mutant(
        "other accelerators are compared by their price",
        f"{ENGINE}/share_choice.py",
        "cost=percent * price,",
        "cost=float(percent),",
        SHARE,
    ),
    Mutant(
        "replicas stay where the spec allows",
        "operator/ullage/scheduling/inventory/held_shares.py",
        "if workload.accelerators and chosen.accelerator not in workload.accelerators:",
        "if not chosen.accelerator:",
        ACCELERATOR,
    ),
    Mutant(
        "a target out of reach is relaxed",
        f"{ENGINE}/following.py",
        "return target if kept else",
        "return target if True else",
        BINS,
    ),
    Mutant(
        "a service sleeps only where every router says that nothing waits",
        f"{LIFECYCLE}/sleeping.py",
        "if self.heard and report and may_sleep",
        "if report and may_sleep",
        SLEEPS,
    ),
    Mutant(
        "one router with a request is enough to wake",
        f"{LIFECYCLE}/sleeping.py",
        "if report is None:\n            return False\n        return has",
        "if report is None or not self.heard:\n            return False\n        return has",
        SLEEPS,
    ),
    Mutant(
        "a router that is silent wakes",
        f"{LIFECYCLE}/sleeping.py",
        "if self.load is not None and self.load.silent:\n            return True",
        "if False:\n            return True",
        SLEEPS,
    ),
    Mutant(
        "a sleep that was noted ends with the next load",
        f"{LIFECYCLE}/scaling.py",
        "history = with_sleep(history, sleep_memory(before).awake())",
        "history = history",
        SLEEPS,
    ),
    Mutant(
        "a replica that is to go stays where a request came first",
        f"{LIFECYCLE}/scaling.py",
        "action = None if overtaken else",
        "action =",
        SLEEPS,
    ),
    Mutant(
        "a service that wakes slower than requests wait does not sleep",
        f"{ENGINE}/sleeping.py",
        "and routers.wake_s <= terms.hold_s",
        "",
        SLEEPING,
    ),
    Mutant(
        "a wake soon after the sleep doubles the time without requests",
        f"{ENGINE}/sleeping.py",
        "doublings=min(MOST_DOUBLINGS, memory.doublings + 1)",
        "doublings=memory.doublings",
        SLEEPING,
    ),
    Mutant(
        "a router that began again is no request",
        "operator/ullage/app/router_service.py",
        "for at, report in heard if report.arrived]",
        "for at, report in heard]",
        ROUTERS,
    ),
    Mutant(
        "routers that are not asked are missing",
        "operator/ullage/app/router_service.py",
        "elif asked is None or not asked.pod.leaving:",
        "elif asked is not None and not asked.pod.leaving:",
        ROUTERS,
    ),
    *(
        Mutant(
            f"the API server holds services to {name}",
            "operator/ullage/api/rules.py",
            line,
            instead,
            SCHEMAS,
        )
        for name, line, instead in (
            (
                "an objective before batching",
                'rule="!has(self.batching) || has(self.slo)"',
                'rule="true"',
            ),
            (
                "rising batch sizes",
                'rule="self.isSorted() && self.all(s, self.exists_one(t, t == s))"',
                'rule="self.all(s, self.exists_one(t, t == s))"',
            ),
            (
                "each batch size once",
                'rule="self.isSorted() && self.all(s, self.exists_one(t, t == s))"',
                'rule="self.isSorted()"',
            ),
            (
                "bodies of at least 1Ki",
                'name="body-positive",\n    rule=at_least("1Ki")',
                'name="body-positive",\n    rule=at_least("0")',
            ),
            (
                "bodies that fit into the queue",
                "quantity(string(self.body)).compareTo(quantity(string(self.queueMemory))) <= 0",
                "quantity(string(self.body)).compareTo(quantity(string(self.body))) <= 0",
            ),
            (
                "memory for the router",
                'rule=at_least("128Mi")',
                'rule=at_least("1Mi")',
            ),
            (
                "a replica where nothing holds requests",
                "|| (has(self.batching) && self.batching.holdSeconds > 0)",
                "|| self.scaling.minReplicas >= 0",
            ),
            (
                "a router that holds requests where there may be no replica",
                "has(self.batching) && self.batching.holdSeconds > 0",
                "has(self.batching)",
            ),
            (
                "a replica only where nothing else holds requests",
                "|| (has(self.batching) && self.batching.holdSeconds > 0)",
                "",
            ),
        )
    ),
    Mutant(
        "an old page is no load",
        "deviceplugin/ullage_node/telemetry/loads.py",
        "or now - pages[-1].at_s > PAGE_STALE_S",
        "",
        LOADS,
    ),
)
