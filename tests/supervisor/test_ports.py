"""A taken port is one line that names it."""

import socket

import pytest

from platform_defs.supervisor.ports import PortTaken, find_free_port, require_free_port
from tests.ports import FIRST_TAKEN_BY_CONNECTIONS


def test_a_taken_port_is_named_with_the_option_that_chooses_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"^port {port} on 127\.0\.0\.1 is not free for the API .*--api-port"):
            require_free_port("127.0.0.1", port, "API", "--api-port")


def test_a_port_taken_on_all_addresses_is_taken_on_loopback_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server, pytest.raises(PortTaken):
        require_free_port("127.0.0.1", server.getsockname()[1], "API", "--api-port")


def test_a_free_port_can_be_had_and_stays_free() -> None:
    port = find_free_port("127.0.0.1")
    assert port < FIRST_TAKEN_BY_CONNECTIONS, "an outgoing connection may take others at any moment"
    require_free_port("127.0.0.1", port, "UI", "--ui-port")
    require_free_port("127.0.0.1", port, "UI", "--ui-port")
