# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of workload classes, and the risk that co-runners break an objective."""
