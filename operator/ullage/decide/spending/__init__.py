# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which pools a job with a cost objective may be placed in now, and what that costs."""
