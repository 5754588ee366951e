# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Three ways of running the same work, as the objects that a user of each would apply.

The programs, their work and their times are the plan's and equal under all three. Pure: bodies out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from bench.mixed_judge import Alone
from bench.mixed_plan import CLASSES, REQUESTS_PER_S, SERVICE, Arrival, Plan
from demo.images import image_name
from ullage.api.labels import API_VERSION

Body = dict[str, object]
OVERCOMMIT: Final = 400
WHOLE: Final = 100
HISTORY_MOST: Final = 50
"""No one takes more before prediction, so that there are neighbours to learn from."""
SERVICE_DUTY: Final = 0.1
SERVICE_SHARE: Final = (20, 30)
CLASS_LABEL: Final = "ullage.dev/class"

PROGRAM: Final = """
import os, sys, time
import ullage_run
from digits import data
from digits.plan import Plan
from digits.training import Trainer
ullage_run.watch_sigterm()
plan, pause_s = Plan.from_environment(os.environ), float(os.environ["PAUSE_MS"]) / 1000
trainer = Trainer(plan, data.load())
while not trainer.finished:
    if ullage_run.stopping():
        sys.exit(143)
    began = time.perf_counter_ns()
    trainer.advance()
    ullage_run.step(items=plan.batch, took_ns=time.perf_counter_ns() - began)
    if pause_s:
        time.sleep(pause_s)
print(f"test accuracy {trainer.accuracy():.4f}")
"""
"""The training of ``examples/digits``; the pause stands for waiting for input and is no part of a
step, as in a server."""


class Rule(StrEnum):
    """How devices are shared."""

    OURS = "ours"
    UNCONTROLLED = "uncontrolled"
    EXCLUSIVE = "exclusive"
    HISTORY = "history"
    """What a cluster did before anything was predicted: shares, no objectives; not compared."""


def policy(rule: Rule) -> Body:
    """The SchedulingPolicy of a rule."""
    spec: Body = {"risk": {"predictor": "Learned"}, "packing": {"maxPercentSum": 100}}
    if rule is Rule.UNCONTROLLED:
        spec = {
            "risk": {"predictor": "UtilisationSum"},
            "packing": {"maxPercentSum": OVERCOMMIT},
        }
    elif rule is Rule.HISTORY:
        spec["risk"] = {"predictor": "UtilisationSum"}
    return _object("SchedulingPolicy", "default", spec)


def profiles(alone: Alone | None = None) -> list[Body]:
    """What the owners say of their work alone, under every rule.

    Args:
        alone: What each class did alone, once it was tried: no one can promise a latency or a
            slowdown without knowing it.
    """
    duties = {name: workload_class.duty for name, workload_class in CLASSES.items()} | {
        SERVICE: SERVICE_DUTY
    }
    bodies: list[Body] = []
    for name, duty in sorted(duties.items()):
        row: Body = {"device": "emulated", "share": 100, "smUtil": round(duty, 2)}
        if alone is not None:
            row["stepsPerSecond"] = round(alone.steps_per_s[name], 3)
        if alone is not None and name == SERVICE:
            row["latencyP99Seconds"] = round(alone.p99_s, 6)
        bodies.append(_object("WorkloadProfile", name, {"class": name, "solo": [row]}))
    return bodies


def job(arrival: Arrival, rule: Rule) -> Body:
    """A TrainingJob. Only ours is told the objective; all are judged by it."""
    workload_class = CLASSES[arrival.workload_class]
    environment = {
        "STEPS": arrival.steps,
        "HIDDEN": workload_class.hidden,
        "BATCH": workload_class.batch,
        "PAUSE_MS": workload_class.pause_ms,
    }
    spec: Body = {
        "gpu": _gpu(workload_class.share, rule),
        "work": {"steps": arrival.steps},
        "profileRef": workload_class.name,
        "failurePolicy": {"maxRestarts": 3},
        "template": _template(workload_class.name, ["python3", "-c", PROGRAM], environment),
    }
    if rule is Rule.OURS and arrival.max_slowdown is not None:
        spec["slo"] = {"maxSlowdown": f"{arrival.max_slowdown:g}"}
    return _object("TrainingJob", arrival.name, spec)


def service(plan: Plan, rule: Rule) -> Body:
    """The InferenceDeployment that answers throughout."""
    environment = {"PORT": 8080, "HIDDEN": 256, "TRAIN_STEPS": 500}
    template = _template(SERVICE, ["python3", "-m", "digits.serve"], environment)
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 2}
    container = _first_container(template)
    container["ports"] = [{"name": "http", "containerPort": 8080}]
    container["readinessProbe"] = probe | {"timeoutSeconds": 5}
    spec: Body = {
        "replicas": 1,
        "gpu": _gpu(SERVICE_SHARE, rule),
        "profileRef": SERVICE,
        "load": {"requestsPerSecond": f"{REQUESTS_PER_S:g}", "cv2": "1"},
        "template": template,
    }
    if rule is Rule.OURS:
        spec["slo"] = {"latencyMs": plan.service_latency_ms, "percentile": "99"}
    return _object("InferenceDeployment", SERVICE, spec)


def _gpu(share: tuple[int, int], rule: Rule) -> Body:
    if rule is Rule.EXCLUSIVE:
        return {"mode": "Exclusive", "count": 1}
    least, most = share
    if rule is Rule.UNCONTROLLED:
        least = most = WHOLE
    elif rule is Rule.HISTORY:
        most = min(most, HISTORY_MOST)
    return {
        "mode": "Fractional",
        "share": {"minPercent": least, "maxPercent": most},
        "memory": {"limit": "512Mi"},
    }


def _template(
    workload_class: str, command: list[str], environment: Mapping[str, int | float]
) -> Body:
    threads = {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
    container: Body = {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": command,
        "env": [{"name": k, "value": str(v)} for k, v in {**environment, **threads}.items()],
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }
    spec: Body = {"containers": [container], "terminationGracePeriodSeconds": 5}
    return {"metadata": {"labels": {CLASS_LABEL: workload_class}}, "spec": spec}


def _first_container(template: Body) -> Body:
    spec = template["spec"]
    assert isinstance(spec, dict)
    container: Body = spec["containers"][0]
    return container


def _object(kind: str, name: str, spec: Body) -> Body:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
