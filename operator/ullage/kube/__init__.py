# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API: client, reflectors, Lease, writer and the bodies of requests."""
