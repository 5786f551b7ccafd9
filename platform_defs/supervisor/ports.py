"""Checks that a port is free, and finds a free one."""

import random
import socket
from pathlib import Path

from platform_defs.errors import PlatformError

_LOWEST = 10_000
_ATTEMPTS = 100
_FIRST_BY_DEFAULT = 32_768


class PortTaken(PlatformError):
    """Another program listens on the port."""


def require_free_port(host: str, port: int, purpose: str, option: str) -> None:
    """Raises one line that names the port, its purpose and the option that chooses another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # The servers bind with this option too: a connection in TIME_WAIT does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise PortTaken(
                f"port {port} on {host} is not free for the {purpose} ({error.strerror}); {option} chooses another"
            ) from None


def find_free_port(host: str) -> int:
    """A free port below those that the system gives to outgoing connections.

    One of those may be taken by a connection before the process that it was found for listens on it.
    """
    last = _first_port_of_connections() - 1
    for _ in range(_ATTEMPTS):
        port = random.SystemRandom().randint(_LOWEST, last)
        try:
            require_free_port(host, port, "a process of the platform", "a new start")
        except PortTaken:
            continue
        return port
    raise PortTaken(f"no free port on {host} between {_LOWEST} and {last} was found in {_ATTEMPTS} attempts")


def _first_port_of_connections() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = _FIRST_BY_DEFAULT  # not Linux
    return first if first > _LOWEST + _ATTEMPTS else _FIRST_BY_DEFAULT
