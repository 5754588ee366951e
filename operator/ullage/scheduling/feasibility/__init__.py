# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What each workload requests, what is occupied, and which hard limits refuse a device."""
