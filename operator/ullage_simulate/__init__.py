# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs traces through the deciding code, without a cluster; never acts on one."""
