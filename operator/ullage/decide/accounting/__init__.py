# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What work costs: prices of devices, books of every workload, work that losses took."""
