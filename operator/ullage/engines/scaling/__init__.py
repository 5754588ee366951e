# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Number, share and accelerator of replicas that meet a latency objective at the forecast load.

Pure: no I/O and no clock; the caller measures the load and starts replicas.
"""
