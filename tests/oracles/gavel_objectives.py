# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the public simulator's policies on random instances and writes what they reach.

For development only: it needs a checkout of stanford-futuredata/gavel and an interpreter with
numpy 1.26, cvxpy < 1.5, ecos and cvxopt, none of which the product has. It imports nothing of ours.

    python tests/oracles/gavel_objectives.py GAVEL/scheduler \
        operator/ullage_simulate/data/solo.json \
        > tests/data/allocation/objectives.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

COMMIT = "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c"
INSTANCES = 240
FILLED = 20
"""Largest instance of water filling: the simulator solves a mixed-integer program per level."""


def instance(number: int, rows: list[list[object]], rng: np.random.Generator) -> dict[str, object]:
    """Jobs of the table's types on a small cluster; the oldest first."""
    count = int(rng.integers(2, FILLED + 1) if number % 2 else rng.integers(2, 61))
    able = [index for index, row in enumerate(rows) if row[1] in (1, 2, 4) and max(row[2:]) > 0]
    picked = sorted(int(index) for index in rng.choice(able, count))
    ages = sorted((round(float(age), 1) for age in rng.uniform(0, 40000, count)), reverse=True)
    jobs = []
    for place, index in enumerate(rng.permutation(picked)):
        best = max(rows[int(index)][2:])
        left = round(float(best * 60 * 10 ** rng.uniform(1.5, 3)), 1)
        done = round(float(ages[place] * rng.uniform(0, 0.8)), 1)
        weight = float(rng.choice([1, 1, 1, 2, 5]))
        jobs.append([int(index), weight, left, ages[place], done])
    body: dict[str, object] = {
        "devices": [int(size) for size in rng.integers(4, 25, 3)],
        "jobs": jobs,
    }
    if number % 4 == 1:
        tenants = int(rng.integers(2, 4))
        body["tenants"] = [
            [float(rng.integers(1, 4)), str(rng.choice(["fairness", "fifo"]))]
            for _ in range(tenants)
        ]
        body["tenant_of"] = [place % tenants for place in range(count)]
    return body


def solve(body: dict[str, object], rows: list[list[object]], types: list[str]) -> None:
    """Add the simulator's objectives to an instance."""
    from finish_time_fairness import FinishTimeFairnessPolicyWithPerf
    from job_id_pair import JobIdPair
    from max_min_fairness import MaxMinFairnessPolicyWithPerf
    from max_min_fairness_water_filling import MaxMinFairnessWaterFillingPolicyWithPerf
    from min_total_duration import MinTotalDurationPolicyWithPerf

    jobs = body["jobs"]
    ids = [JobIdPair(place, None) for place in range(len(jobs))]
    spec = dict(zip(types, body["devices"], strict=True))
    speeds = {
        i: dict(zip(types, rows[job[0]][2:], strict=True)) for i, job in zip(ids, jobs, strict=True)
    }
    gangs = {i: rows[job[0]][1] for i, job in zip(ids, jobs, strict=True)}
    weights = {i: job[1] for i, job in zip(ids, jobs, strict=True)}
    left = {i: job[2] for i, job in zip(ids, jobs, strict=True)}
    rate = np.array([[speeds[i][kind] for kind in types] for i in ids])
    gang = np.array([float(gangs[i]) for i in ids])
    weight = np.array([weights[i] for i in ids])
    size = np.array([float(spec[kind]) for kind in types])

    def table(found: dict) -> np.ndarray:
        return np.array([[float(found[i][kind]) for kind in types] for i in ids])

    even = rate @ (size / size.sum())
    las = MaxMinFairnessPolicyWithPerf("ECOS").get_allocation(speeds, gangs, weights, spec)
    body["las"] = float(((rate * table(las)).sum(1) * gang / weight / even).min())
    fair = FinishTimeFairnessPolicyWithPerf("ECOS")
    fair._cumulative_isolated_time = {i: job[4] for i, job in zip(ids, jobs, strict=True)}
    since = {i: job[3] for i, job in zip(ids, jobs, strict=True)}
    found = table(fair.get_allocation(speeds, gangs, weights, since, left, spec))
    alone = size[None, :] / len(ids) / gang[:, None]
    alone /= np.maximum(alone.sum(1, keepdims=True), 1.0)
    steps = np.array([job[2] for job in jobs])
    base = np.array([job[4] for job in jobs]) + steps / (rate * alone).sum(1)
    ages = np.array([job[3] for job in jobs])
    body["ftf"] = float(((ages + steps / (rate * found).sum(1)) / base).max())
    if len(ids) > FILLED:
        return
    span = MinTotalDurationPolicyWithPerf("ECOS").get_allocation(speeds, gangs, left, spec)
    body["makespan_s"] = float((steps / (rate * table(span)).sum(1)).max())
    tenants = body.get("tenants")
    if tenants is None:
        filling = MaxMinFairnessWaterFillingPolicyWithPerf()
        filled = filling.get_allocation(speeds, gangs, weights, spec)
    else:
        rules = {number: tenant[1] for number, tenant in enumerate(tenants)}
        owners: dict[int, list] = {number: [] for number in rules}
        for i, owner in zip(ids, body["tenant_of"], strict=True):
            owners[owner].append(i)
        filling = MaxMinFairnessWaterFillingPolicyWithPerf(rules)
        filled = filling.get_allocation(
            speeds,
            gangs,
            weights,
            spec,
            entity_weights={number: tenant[0] for number, tenant in enumerate(tenants)},
            entity_to_job_mapping=owners,
        )
    levels = (rate * table(filled)).sum(1) * gang / even
    body["levels"] = [float(level) for level in levels]


def main() -> None:
    checkout, solo = Path(sys.argv[1]).resolve(), json.loads(Path(sys.argv[2]).read_text())
    sys.path[:0] = [str(checkout / "policies"), str(checkout)]
    rng = np.random.default_rng(5)
    bodies = []
    for number in range(INSTANCES):
        body = instance(number, solo["rows"], rng)
        solve(body, solo["rows"], solo["types"])
        bodies.append(body)
    head = {
        "repository": "github.com/stanford-futuredata/gavel",
        "commit": COMMIT,
        "command": "python tests/oracles/gavel_objectives.py GAVEL/scheduler "
        "operator/ullage_simulate/data/solo.json > tests/data/allocation/objectives.json",
        "job": "[row of solo.json, weight, steps left, age s, isolated s]",
    }
    lines = ",\n".join(json.dumps(body) for body in bodies)
    print(json.dumps(head)[:-1] + ', "instances": [\n' + lines + "\n]}")


if __name__ == "__main__":
    main()
