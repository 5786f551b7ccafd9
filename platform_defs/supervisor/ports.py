"""Checks that a port is free, and finds a free one."""

import socket

from platform_defs.errors import PlatformError


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
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
