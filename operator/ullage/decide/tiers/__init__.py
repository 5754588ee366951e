# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs in tiers: the pod that leads one, who runs on machines that stay, what is told of it."""
