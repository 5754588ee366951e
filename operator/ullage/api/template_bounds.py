# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bounds of the lists of a pod (our choice): the API server bounds few of them.

A user chooses how long they are, and everything that is read of a pod is read beside the pods of
others. The CRDs refuse a template with more; of a pod that exists no more is read.
"""

from __future__ import annotations

from typing import Final

MOST_CONTAINERS: Final = 16
MOST_TOLERATIONS: Final = 256
MOST_SELECTED: Final = 256
"""Labels of a node that a ``nodeSelector`` asks for."""
MOST_NODE_TERMS: Final = 64
"""Terms of a required node affinity, and requirements of each."""
MOST_VOLUMES: Final = 256
MOST_SECRETS: Final = 64
"""Of ``imagePullSecrets``."""
MOST_GATES: Final = 64
"""Of ``schedulingGates``."""
MOST_VARIABLES: Final = 1_024
"""Of ``env`` of a container."""
MOST_PORTS: Final = 256
"""Of a container."""
MOST_MOUNTS: Final = 512
"""Of ``volumeMounts`` of a container."""
MOST_AMOUNTS: Final = 64
"""Resources in the requests or limits of a container."""
