# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains why a service has its number of replicas. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

SCALING: Final[Mapping[Reason, Explanation]] = {
    Reason.LOAD_UNKNOWN: say(
        "No node reports how many requests the service gets, so its replicas stay as they are.",
        "Wait until a replica is ready and has answered requests. If it lasts, look for the Event "
        "LatencyUnmeasured of the pods: the histogram that spec.slo.metric names must be readable "
        "and count requests.",
    ),
    Reason.STEADY: say(
        "The number of replicas is what the objective needs at the load to come, or fewer have not "
        "been enough for two minutes yet.",
        "Nothing.",
    ),
    Reason.SCALED_UP: say(
        "The objective needs more replicas at the load to come.",
        "Nothing. Replicas that find no device wait, and `kubectl ullage why` says for what.",
    ),
    Reason.SCALED_DOWN: say("Fewer replicas were enough for two minutes.", "Nothing."),
    Reason.AT_MAXIMUM: say(
        "The objective needs more replicas than scaling.maxReplicas allows.",
        "Raise scaling.maxReplicas, give replicas a larger share, or loosen spec.slo.",
    ),
    Reason.SCALED_TO_ZERO: say(
        "No request came for scaling.idleSeconds, or for longer if one came soon after the last "
        "time. The service has no replica; its router holds the next request while one starts.",
        "Nothing; the next request wakes it. To keep a replica, set scaling.minReplicas and "
        "replicas to 1.",
    ),
    Reason.WOKEN: say(
        "A replica starts, because a request waits or the router does not report whether one does.",
        "Nothing. `kubectl ullage why` shows what the replica waits for.",
    ),
    Reason.OUT_OF_REACH: say(
        "Requests that do not wait take longer than the objective allows, so more replicas cannot "
        "keep it. There are as many as keep waiting short.",
        "Give replicas a larger share or a faster accelerator, or loosen spec.slo. With "
        "sharing.resizable: Restart the operator chooses the accelerator, and with a range in "
        "gpu.share and gpu.memory.limit the share, too.",
    ),
    Reason.SHARE_CHOSEN: say(
        "The operator chose another share of a device or another accelerator for the replicas: it "
        "costs less at the largest load of the last twenty minutes, or more replicas of the "
        "present kind cannot keep the objective. Replicas are replaced one after the other.",
        "Nothing. To keep both, set sharing.resizable to Never; to keep the share, set minPercent "
        "and maxPercent of gpu.share to the same number; to keep the accelerator, name it alone in "
        "spec.accelerators.",
    ),
    Reason.PEAK_AHEAD: say(
        "The load of the service beside the job is forecast to grow, and the service needs the "
        "job's share to keep its objective. The job restarts from its checkpoint: with a smaller "
        "share if sharing.resizable allows one that is small enough, else wherever there is room.",
        "Nothing: the job returns when the forecast leaves room, to this device after five minutes "
        "at the earliest. If it must not give way, give it a higher priority than the service, or "
        "an objective.",
    ),
}
