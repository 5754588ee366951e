# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which capacity pools a workload should use, and the nodes to request from them."""
