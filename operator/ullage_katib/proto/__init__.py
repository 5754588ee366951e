# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages of Katib's suggestion services, made from the ``.proto`` file beside."""
