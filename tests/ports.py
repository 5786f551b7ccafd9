"""Ports that stay free until a test uses them."""

import random
import socket
from pathlib import Path

# From here on the system gives ports to outgoing connections: one that is free now may be taken a moment later.
FIRST_TAKEN_BY_CONNECTIONS = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
LOWEST = 10_000


def free_ports(count: int) -> list[int]:
    """Different ones, by chance: other workers look for theirs at the same time."""
    chosen: list[int] = []
    while len(chosen) < count:
        port = random.SystemRandom().randrange(LOWEST, FIRST_TAKEN_BY_CONNECTIONS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        chosen = [*dict.fromkeys([*chosen, port])]
    return chosen
