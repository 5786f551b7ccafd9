"""Ports: whether one can be had, and any free one."""

import socket

from platform_defs.errors import PlatformError


class PortTaken(PlatformError):
    """Something else listens where we want to."""


def require_free(host: str, port: int, what: str, option: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # as the servers themselves bind: a connection in TIME_WAIT is no obstacle
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise PortTaken(
                f"port {port} on {host} is not free for the {what} ({error.strerror}); {option} chooses another"
            ) from None


def free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
