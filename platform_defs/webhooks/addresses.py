"""Checks the addresses of users' URLs: private and special ones are refused unless the operator allowed the network."""

import re
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpx

from platform_defs.webhooks.errors import AddressRefused, UrlRefused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Sequence[str]]

# characters of names and of addresses; httpx would escape others instead of refusing them
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")

# Tables of our own, since `ipaddress.is_global` differs between versions of Python and accepts multicast, 6to4 and
# NAT64. These are the IPv4 blocks of IANA's special-purpose registry.
_REFUSED_IPV4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        # public, but inside Azure it serves the metadata of the machine
        "168.63.129.16/32",
    )
)
# IPv6's only block of global unicast addresses; loopback, link-local, private and multicast lie outside it.
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_REFUSED_IPV6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo and other protocol assignments
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_permitted(address: Address, allow: Sequence[Network]) -> bool:
    """Whether a connection to this address may be opened."""
    if any(address in network for network in allow if network.version == address.version):
        return True
    inner = _embedded_ipv4(address)
    if inner is not None:
        return is_permitted(inner, allow)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in network for network in _REFUSED_IPV6)


def permitted_addresses(host: str, port: int, *, allow: Sequence[Network], resolver: Resolver) -> list[Address]:
    """Resolves the host once and returns its permitted addresses; the caller must connect to one of these.

    Addresses in any spelling (decimal, octal, hexadecimal) pass the resolver too, and are checked by what they mean.
    """
    try:
        found = list(dict.fromkeys(ip_address(text) for text in resolver(host, port)))
    except (OSError, UnicodeError):
        raise AddressRefused(f"{host} cannot be resolved") from None
    permitted = [address for address in found if is_permitted(address, allow)]
    if not permitted:
        raise AddressRefused(_refusal(host, found))
    return permitted


def resolve_by_system(host: str, port: int) -> list[str]:
    """The system's resolver."""
    return [str(answer[4][0]) for answer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def with_timeout(seconds: float, resolver: Resolver) -> Resolver:
    """A resolver that gives up after `seconds`: the system's has no time limit and may outlast a sender's lease."""

    def bounded(host: str, port: int) -> Sequence[str]:
        answers: list[Sequence[str]] = []
        failures: list[OSError | UnicodeError] = []

        def ask() -> None:
            try:
                answers.append(resolver(host, port))
            except (OSError, UnicodeError) as error:
                failures.append(error)

        thread = threading.Thread(target=ask, daemon=True, name="resolver")
        thread.start()
        thread.join(seconds)
        if failures:
            raise failures[0]
        if not answers:
            raise TimeoutError(f"no answer within {seconds:.0f} seconds")
        return answers[0]

    return bounded


def check_url(url: str, *, allow: Sequence[Network]) -> httpx.URL:
    """Raises UrlRefused if a user's URL cannot be called.

    An address that is written into the URL is checked here, a name only when it is resolved for a call.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise UrlRefused("expected an absolute http or https URL") from None
    if parsed.scheme not in ("http", "https") or not _HOST.fullmatch(parsed.raw_host):
        raise UrlRefused("expected an absolute http or https URL")
    if parsed.userinfo:
        raise UrlRefused("expected no user or password in the URL; a secret is the place for them")
    if parsed.fragment:
        raise UrlRefused("expected no fragment (#…): it would never be sent")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise UrlRefused("expected a port from 1 to 65535")
    literal = _literal_addresses(parsed.raw_host.decode("ascii"))
    if literal and not any(is_permitted(address, allow) for address in literal):
        raise UrlRefused(_refusal(parsed.host, literal))
    return parsed


def _literal_addresses(host: str) -> list[Address]:
    """The addresses that a host stands for without any lookup; empty for a name."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return [IPv4Address("127.0.0.1"), IPv6Address("::1")]
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [ip_address(answer[4][0]) for answer in answers]


def _embedded_ipv4(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv4-mapped or NAT64 address leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def _refusal(host: str, found: Sequence[Address]) -> str:
    shown = ", ".join(str(address) for address in found)
    meaning = "" if shown == host else f" ({shown})"
    return (
        f"{host}{meaning} is not a public address; PLATFORM_HTTP_ALLOW names private networks that are allowed,"
        " PLATFORM_WEBHOOK_ALLOW further ones for webhooks"
    )
