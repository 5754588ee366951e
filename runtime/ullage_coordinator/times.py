# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the coordinator of a job, each with its reason."""

from __future__ import annotations

from typing import Final

ORDER_S: Final = 60.0
"""For members to carry out an order; one that is gone or silent is noticed long before. Chosen."""
LEAVE_S: Final = 5.0
"""For members to learn that they may end. Chosen."""
STATUS_ASK_S: Final = 5.0
"""From the connection to the end of the answer. Chosen."""
STATUS_PLACE_S: Final = 1.0
"""Until the thread of a connection that had to go has ended. Chosen."""
DOORWAY_TICK_S: Final = 0.25
"""Between two looks for connections whose handshake is late. Chosen."""
ACCEPT_PAUSE_S: Final = 0.05
"""After a failed accept: the process may be out of file descriptors for a while. Chosen."""
HANDSHAKE_S: Final = 5.0
"""From the connection to the client's proof; members need milliseconds. Chosen."""
SEND_S: Final = 10.0
"""A member that takes nothing for so long is gone. Chosen."""
STORE_WAIT_S: Final = 1.0
"""An offer or a question waits for so long before the peer has to ask again. Chosen."""
PUSH_STALLED_S: Final = 30.0
"""A peer that announced bytes and sends none for so long is dropped. Chosen."""
