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
        "No request came for scaling.idleSeconds, or for longer where one came soon after the last "
        "time: the service has no replica, and its router holds the next request while one starts.",
        "Nothing; the next request wakes it. To keep a replica, set scaling.minReplicas and "
        "replicas to 1.",
    ),
    Reason.WOKEN: say(
        "A request waits, or the router does not say whether one does: a replica starts.",
        "Nothing. `kubectl ullage why` says what a replica waits for.",
    ),
    Reason.OUT_OF_REACH: say(
        "Requests that do not wait take longer than the objective allows, so more replicas cannot "
        "keep it. There are as many as keep waiting short.",
        "Give replicas a larger share or a faster accelerator, or loosen spec.slo.",
    ),
    Reason.PEAK_AHEAD: say(
        "The job trains beside a service whose load is about to grow, and its device, or a part of "
        "it, is needed to keep the service's objective. It starts again from its checkpoint: with "
        "a smaller share where sharing.resizable allows it and that is enough, else wherever there "
        "is room.",
        "Nothing: it comes back when the forecast leaves room, after five minutes at the earliest "
        "on this device. Give the job a higher priority than the service, or an objective, if it "
        "is not to give way.",
    ),
}
