"""A connection to a host that a user chose, opened to exactly the address that was checked, under one time limit.

Plain sockets, since HTTP client libraries look the name up once more, use the environment's proxies, and apply a time
limit to each read instead of to the whole exchange.
"""

import socket
import ssl
import time
from collections.abc import Sequence

from platform_defs.webhooks.addresses import Address, Network, Resolver, permitted_addresses, with_timeout


class Deadline:
    """One time limit for everything that an exchange does: name lookup, connection, TLS, request and answer."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def open_checked_connection(
    scheme: str,
    host: str,
    port: int,
    *,
    allow: Sequence[Network],
    resolver: Resolver,
    tls: ssl.SSLContext,
    deadline: Deadline,
) -> socket.socket:
    """Connects to a permitted address of the host; for `https` the certificate must be the host's.

    Raises AddressRefused if no address is permitted, and OSError (timeouts and TLS errors included) for the rest.
    Redirects are the caller's business: the host of each is to be checked like the first.
    """
    bounded = with_timeout(deadline.left(), resolver)
    addresses = permitted_addresses(host, port, allow=allow, resolver=bounded)
    plain = _connect_to_first(addresses, port, deadline)
    if scheme == "http":
        return plain
    try:
        plain.settimeout(deadline.left())
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _connect_to_first(addresses: Sequence[Address], port: int, deadline: Deadline) -> socket.socket:
    """Tries the addresses in order until one accepts the connection."""
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((str(address), port), timeout=deadline.left())
        except OSError as error:
            failure = error
    raise failure
