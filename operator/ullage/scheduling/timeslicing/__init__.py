# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time slicing of workloads on devices, in rounds that follow the policy."""
