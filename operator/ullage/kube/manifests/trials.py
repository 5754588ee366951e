# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainingJob of a trial: the user's template with parameters in its environment."""

from __future__ import annotations

import json
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.environment import (
    ENV_PARAMETER,
    ENV_TRIAL,
    ENV_TRIAL_EPOCHS,
    ENV_TRIAL_METRIC,
    ENV_TRIAL_REPORT,
)
from ullage.api.labels import (
    ANNOTATION_TRIAL_EPOCH,
    ANNOTATION_TRIAL_PARAMETERS,
    API_VERSION,
    LABEL_CLASS,
    LABEL_TRIAL,
    LABEL_TUNING,
)
from ullage.api.readers import JsonObject, WireError, objects, section
from ullage.cluster.codecs.objects import optional_text, string_map
from ullage.cluster.projection.pod_template import canonical_json
from ullage.cluster.records.tuning import TuningRecord
from ullage.cluster.values.names import trial_name
from ullage.kube.manifests.tiers import child_metadata
from ullage.scheduling.model.plan import CreateTrial

Body = dict[str, object]

TERMINATION_MESSAGE: Final = "/dev/termination-log"
"""Path of a container's termination message, unless the container sets its own."""
_PREFIX: Final = "ULLAGE_TRIAL"
_WHOLE: Final = 100
"""Percent of one device."""


def trial_body(action: CreateTrial, job: TuningRecord) -> Body:
    """The TrainingJob that runs a trial up to an epoch.

    Its class of work is that of the TuningJob: parameters differ, measurements are shared.

    Args:
        action: The trial.
        job: The TuningJob with the template.

    Raises:
        WireError: the template has no readable containers.
    """
    spec: Body = json.loads(job.trial_template)
    template = dict(section(spec, "template"))
    pod = dict(section(template, "spec"))
    containers = [dict(container) for container in objects(pod, "containers")]
    if not containers:
        raise WireError("template.spec.containers: at least one container is needed")
    _tell(containers[0], action, job)
    if action.percent:
        spec["gpu"] = _devices(section(spec, "gpu"), action.percent)
    pod["containers"] = containers
    template["spec"] = pod
    spec["template"] = template
    labels = {LABEL_TUNING: job.ref.name, LABEL_TRIAL: str(action.trial)}
    if not string_map(section(template, "metadata"), "labels").get(LABEL_CLASS):
        labels[LABEL_CLASS] = f"tuning-{job.ref.name}"
    annotations = {
        ANNOTATION_TRIAL_EPOCH: str(action.until_epoch),
        ANNOTATION_TRIAL_PARAMETERS: canonical_json(dict(action.parameters)),
    }
    metadata = child_metadata(job.ref, action.name, labels) | {"annotations": annotations}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": metadata,
        "spec": spec,
    }


def _devices(stated: JsonObject, percent: int) -> Body:
    """``spec.gpu`` of a width: whole devices, or a share with the memory of the template."""
    if percent >= _WHOLE:
        return {"mode": GPUMode.EXCLUSIVE.value, "count": percent // _WHOLE}
    share = {"minPercent": percent, "maxPercent": percent}
    memory = {"memory": stated["memory"]} if stated.get("memory") is not None else {}
    return {"mode": GPUMode.FRACTIONAL.value, "share": share, **memory}


def _tell(container: Body, action: CreateTrial, job: TuningRecord) -> None:
    """Add the trial to the device container's environment, before the template's variables.

    Kubernetes expands ``$(NAME)`` of earlier variables, so the template may build its own from
    these. Variables of the template with one of these names are dropped.
    """
    values = {
        ENV_TRIAL: trial_name(job.ref.name, action.trial),
        ENV_TRIAL_EPOCHS: str(action.until_epoch),
        ENV_TRIAL_METRIC: job.metric,
        ENV_TRIAL_REPORT: optional_text(container, "terminationMessagePath") or TERMINATION_MESSAGE,
        **{ENV_PARAMETER + name: value for name, value in action.parameters},
    }
    own = [entry for entry in objects(container, "env") if not _is_ours(entry)]
    container["env"] = [*({"name": name, "value": value} for name, value in values.items()), *own]


def _is_ours(entry: JsonObject) -> bool:
    name = entry.get("name")
    return isinstance(name, str) and name.startswith((_PREFIX, ENV_PARAMETER))
