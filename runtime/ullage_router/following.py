# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses of a name in DNS, such as that of a headless Service: one for each replica."""

from __future__ import annotations

import asyncio
import socket
from typing import Final
from urllib.parse import urlsplit

from ullage_router.times import RESOLVE_S

MOST: Final = 1024
"""Replicas of a service at most; a name with more addresses is not one of our services."""
NONE_THERE: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})
"""Errors for a name without an address, as of a headless Service without pods."""


class Unknown(Exception):
    """The name's addresses could not be determined."""


async def addresses_of_name(url: str) -> frozenset[str]:
    """URLs of all addresses of a URL's host; empty where it has none.

    Raises:
        Unknown: no DNS server answered, or it returned too many addresses.
    """
    split = urlsplit(url)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            entries = await loop.getaddrinfo(split.hostname, split.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in NONE_THERE:
            return frozenset()
        raise Unknown(f"DNS fails: {error.strerror}") from None
    except TimeoutError:
        raise Unknown(f"DNS does not answer in {RESOLVE_S:g} s") from None
    except OSError as error:
        raise Unknown(f"DNS fails: {error}") from None
    hosts = {str(entry[4][0]) for entry in entries}
    if len(hosts) > MOST:
        raise Unknown(f"the name has {len(hosts)} addresses, more than {MOST}")
    return frozenset(
        f"{split.scheme}://[{host}]:{split.port}"
        if ":" in host
        else f"{split.scheme}://{host}:{split.port}"
        for host in hosts
    )
