# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A fake Kubernetes API server on loopback, with the real one's rules and knobs for its faults.

One contract suite runs on it and on a real API server; a difference is a bug of this package.
"""

from fakes.apiserver.access import Access, Rule
from fakes.apiserver.client import make_cluster
from fakes.apiserver.faults import Failure, Faults
from fakes.apiserver.http import Ask, Seen
from fakes.apiserver.resources import CRD, NAMESPACE, RESOURCES, Resource
from fakes.apiserver.server import FakeApiServer

__all__ = [
    "CRD",
    "NAMESPACE",
    "RESOURCES",
    "Access",
    "Ask",
    "Failure",
    "FakeApiServer",
    "Faults",
    "Resource",
    "Rule",
    "Seen",
    "make_cluster",
]
