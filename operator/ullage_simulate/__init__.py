# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces run through the code that decides, without a cluster; nothing here acts on one."""
