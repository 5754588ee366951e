# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the life of a workload asks for: pods that appear, run, fail, start again, end."""
