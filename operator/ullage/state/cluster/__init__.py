# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's one picture of the cluster, kept from streams and frozen for decisions."""
