# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Knowledge about workload classes, and the risk that co-runners break an objective."""
