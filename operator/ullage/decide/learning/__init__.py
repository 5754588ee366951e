# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learning loop: from what nodes observed to what is known of classes of work."""
