# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads that take turns on devices, in rounds that follow the policy."""
