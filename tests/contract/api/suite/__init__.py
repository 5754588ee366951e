# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How an API server answers our client: cases for the fake and for a real one."""

from contract.api.suite import applying, objects, podrules, watching
from contract.api.suite.world import CASES, Case, World

__all__ = ["CASES", "Case", "World", "applying", "objects", "podrules", "watching"]
