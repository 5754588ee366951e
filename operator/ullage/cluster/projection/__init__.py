# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Projects raw objects to records; rejects unreadable fields with their path."""
