# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From raw Kubernetes objects to records: one reader for each kind."""
