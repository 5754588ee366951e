# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the coordinator of a job, each with its reason."""

from __future__ import annotations

from typing import Final

ORDER_S: Final = 60.0
"""Time for members to carry out an order; a lost or silent one is detected long before. Chosen."""
LEAVE_S: Final = 5.0
"""Time for members to receive the order to end. Chosen."""
STATUS_ASK_S: Final = 5.0
"""Limit from the connection to the end of the answer. Chosen."""
STATUS_PLACE_S: Final = 1.0
"""Longest wait for the thread of a closed connection to end. Chosen."""
DOORWAY_TICK_S: Final = 0.25
"""Interval between two checks for connections whose handshake is late. Chosen."""
ACCEPT_PAUSE_S: Final = 0.05
"""Pause after a failed accept: the process may be out of file descriptors. Chosen."""
HANDSHAKE_S: Final = 5.0
"""Limit from the connection to the client's proof; members need milliseconds. Chosen."""
SEND_S: Final = 10.0
"""Time without a read after which a member is gone. Chosen."""
STORE_WAIT_S: Final = 1.0
"""Longest wait of an offer or a query before the peer must retry. Chosen."""
PUSH_STALLED_S: Final = 30.0
"""Time without data after which a peer that announced bytes is dropped. Chosen."""
