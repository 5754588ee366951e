# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An upper bound on the members of a class that fit into the free devices, for all at once.

Predictions and quotas may allow less. It costs the same for one member as for thousands, so every
search whose length a spec chooses is first limited by it.
"""

from __future__ import annotations

import numpy as np

from ullage.engines.admission.limits import LIMITS, memory_needed
from ullage.scheduling.feasibility.device_facts import columns_for
from ullage.scheduling.feasibility.lanes import joined_lanes
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Ints
from ullage.scheduling.placement.candidates import CandidateIndex


def places(candidate_index: CandidateIndex, request: ResourceRequest) -> int:
    """Largest number of members that may fit beside the occupants, each at its minimum share."""
    return int(places_on_nodes(candidate_index, request).sum())


def places_on_nodes(candidate_index: CandidateIndex, request: ResourceRequest) -> Ints:
    """The bound by node, shape (nodes,)."""
    occupancy = candidate_index.occupancy
    inventory = occupancy.inventory
    on_nodes = np.zeros(len(inventory.nodes), dtype=np.int64)
    if not inventory.sites:
        return on_nodes
    facts = columns_for(occupancy, request, joined_lanes(occupancy, request))
    alive = candidate_index.reachable(request)
    for limit in LIMITS:
        alive = alive & (limit.short(facts, request) <= 0)
    if request.exclusive:
        free = np.bincount(inventory.node_of[alive], minlength=len(on_nodes))
        on_nodes += free // request.count
    else:
        each = (facts.contexts - facts.contexts_used) // max(request.contexts, 1)
        if request.lane is None:  # a lane counts once for all its residents
            needed = np.maximum(memory_needed(facts, request, request.min_percent), 1)
            each = np.minimum(each, (facts.memory - facts.memory_used) // needed)
            each = np.minimum(
                each, (request.percent_limit - facts.percent_used) // max(request.min_percent, 1)
            )
        if request.lonely:
            each = np.minimum(each, 1)
        np.add.at(on_nodes, inventory.node_of[alive], each[alive])
    for name, amount in request.needs:
        on_nodes = np.minimum(on_nodes, occupancy.free_column(name) // amount)
    room: Ints = np.maximum(on_nodes, 0)
    return room
