# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Number, share and accelerator of replicas that keep a latency objective at the load to come.

Pure: no I/O and no clock; who measures the load and who starts replicas is the caller's business.
"""
