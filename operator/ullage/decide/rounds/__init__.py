# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Taking turns: the division of the cluster's time, the plan of a round, the books of fairness."""
