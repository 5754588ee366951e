# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What someone else installs: images, charts, the wheel, their contents and checksums."""
