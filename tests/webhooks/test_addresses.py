"""Which addresses a callback may have, whatever they are written as."""

import threading
from collections.abc import Sequence
from ipaddress import ip_address, ip_network

import pytest

from platform_defs.arrivals.errors import InvalidSubscription
from platform_defs.arrivals.notify.subscriptions import check_callback
from platform_defs.errors import SettingsError
from platform_defs.settings import Settings
from platform_defs.webhooks.addresses import (
    Network,
    check_url,
    is_permitted,
    permitted_addresses,
    resolve_by_system,
    with_timeout,
)
from platform_defs.webhooks.errors import AddressRefused, UrlRefused

INSIDE = (
    "127.0.0.1",
    "127.255.255.254",
    "::1",
    "0.0.0.0",
    "::",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "fe80::1",
    "fd00:ec2::254",
    "fc00::1",
    "fec0::1",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.0.9",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "ff0e::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "168.63.129.16",
)
OUTSIDE = (
    "8.8.8.8",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
)
SPELLINGS = (
    "127.0.0.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "169.254.169.254",
    "2852039166",
    "localhost",
    "LOCALHOST.",
    "app.localhost",
    "[64:ff9b::a00:1]",
)


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_refused(address: str) -> None:
    assert not is_permitted(ip_address(address), ())


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_public_address_is_permitted(address: str) -> None:
    assert is_permitted(ip_address(address), ())


def test_the_operator_allows_single_networks_and_no_more() -> None:
    allow = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    assert is_permitted(ip_address("10.1.2.3"), allow)
    assert is_permitted(ip_address("::ffff:10.1.2.3"), allow)
    assert is_permitted(ip_address("fd00::5"), allow)
    assert not is_permitted(ip_address("10.2.0.1"), allow)
    assert not is_permitted(ip_address("127.0.0.1"), allow)


@pytest.mark.parametrize("host", SPELLINGS)
def test_an_address_that_is_written_out_is_refused_when_the_subscription_is_made(host: str) -> None:
    with pytest.raises(InvalidSubscription, match="callbackUrl: "):
        check_callback(f"http://{host}:8080/hook", allow=())


@pytest.mark.parametrize("host", [host.strip("[]") for host in SPELLINGS if "localhost" not in host])
def test_and_again_when_it_is_called(host: str) -> None:
    with pytest.raises(AddressRefused):
        permitted_addresses(host, 80, allow=(), resolver=resolve_by_system)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://example.com/x", "an absolute http or https URL"),
        ("file:///etc/passwd", "an absolute http or https URL"),
        ("/hook", "an absolute http or https URL"),
        ("http://", "an absolute http or https URL"),
        ("http://exa mple.com/", "an absolute http or https URL"),
        ("http://example.com/\r\nX: y", "an absolute http or https URL"),
        ("https://user:hunter2@example.com/", "no user or password"),
        ("https://example.com/#top", "no fragment"),
        ("https://example.com:70000/", "a port"),
        ("https://example.com/" + "x" * 512, "at most 512 characters"),
    ],
)
def test_a_callback_that_cannot_be_called_is_refused_by_name(url: str, expected: str) -> None:
    with pytest.raises(InvalidSubscription) as caught:
        check_callback(url, allow=())
    assert str(caught.value).startswith("callbackUrl: expected ")
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_name_with_answers_inside_and_outside_is_only_ever_called_outside() -> None:
    def both(host: str, port: int) -> list[str]:
        return ["10.0.0.1", "8.8.8.8", "::1"]

    assert permitted_addresses("both.example", 80, allow=(), resolver=both) == [ip_address("8.8.8.8")]


def test_a_resolver_that_hangs_is_given_up() -> None:
    given_up = threading.Event()

    def hangs(host: str, port: int) -> list[str]:
        given_up.wait()
        return ["8.8.8.8"]

    try:
        with pytest.raises(AddressRefused, match=r"slow\.example cannot be resolved"):
            permitted_addresses("slow.example", 80, allow=(), resolver=with_timeout(0.05, hangs))
    finally:
        given_up.set()


def test_allowed_networks_are_read_from_the_settings_and_a_mistake_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLATFORM_WEBHOOK_ALLOW", "10.1.0.0/16, fd00::/8,")
    assert Settings.load().webhook_networks == (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    monkeypatch.setenv("PLATFORM_WEBHOOK_ALLOW", "10.1.0.1/16")
    with pytest.raises(SettingsError, match=r"^PLATFORM_WEBHOOK_ALLOW: expected networks such as 10\.1\.0\.0/16"):
        Settings.load()


def test_a_webhook_reaches_the_networks_of_either_variable_and_other_calls_only_those_of_any_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLATFORM_HTTP_ALLOW", "10.1.0.0/16")
    monkeypatch.setenv("PLATFORM_WEBHOOK_ALLOW", "10.2.0.0/16")
    settings = Settings.load()

    def reaches(address: str, allow: Sequence[Network]) -> bool:
        try:
            check_url(f"http://{address}/", allow=allow)
            permitted_addresses("inside.example", 80, allow=allow, resolver=lambda host, port: [address])
        except (UrlRefused, AddressRefused):
            return False
        return True

    asked = ("10.1.0.1", "10.2.0.1", "10.3.0.1")
    assert [reaches(address, settings.webhook_networks) for address in asked] == [True, True, False]
    assert [reaches(address, settings.http_networks) for address in asked] == [True, False, False]
    with pytest.raises(AddressRefused, match=r"PLATFORM_HTTP_ALLOW .* PLATFORM_WEBHOOK_ALLOW"):
        permitted_addresses("10.3.0.1", 80, allow=settings.http_networks, resolver=resolve_by_system)
