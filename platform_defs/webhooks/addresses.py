"""Which addresses a callback may have: nothing that is inside, unless the operator allowed that network."""

import re
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpx

from platform_defs.webhooks.errors import AddressRefused, InvalidSubscription

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Sequence[str]]

MAX_URL = 512
# of names and addresses alike; the parser would escape whatever else there is
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")

# Tables of our own: what `ipaddress` calls global differs between versions of Python, and includes multicast,
# 6to4 and NAT64. IPv4 as IANA's special-purpose registry has it.
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
        # a public address that Azure answers from inside, with its metadata
        "168.63.129.16/32",
    )
)
# Only this block is global unicast at all; loopback, link-local, private, multicast and the rest lie outside it.
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
    inner = _carried(address)
    if inner is not None:
        return is_permitted(inner, allow)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in network for network in _REFUSED_IPV6)


def permitted_addresses(host: str, port: int, *, allow: Sequence[Network], resolver: Resolver) -> list[Address]:
    """What the host resolves to, without what is refused; whoever connects must connect to one of these.

    Every spelling of an address (decimal, octal, hexadecimal) passes the resolver too, and is judged by what it means.
    """
    try:
        found = list(dict.fromkeys(ip_address(text) for text in resolver(host, port)))
    except (OSError, UnicodeError):
        raise AddressRefused(f"{host} cannot be resolved") from None
    permitted = [address for address in found if is_permitted(address, allow)]
    if not permitted:
        raise AddressRefused(_refusal(host, found))
    return permitted


def look_up(host: str, port: int) -> list[str]:
    """The system's resolver."""
    return [str(answer[4][0]) for answer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def within(seconds: float, resolver: Resolver) -> Resolver:
    """A resolver that gives up: the system's own has no time limit and may take longer than a lease."""

    def bounded(host: str, port: int) -> Sequence[str]:
        answers: list[Sequence[str]] = []
        failures: list[OSError | UnicodeError] = []

        def ask() -> None:
            try:
                answers.append(resolver(host, port))
            except (OSError, UnicodeError) as error:
                failures.append(error)

        thread = threading.Thread(target=ask, daemon=True, name="webhook-resolver")
        thread.start()
        thread.join(seconds)
        if failures:
            raise failures[0]
        if not answers:
            raise TimeoutError(f"no answer within {seconds:.0f} seconds")
        return answers[0]

    return bounded


def check_url(url: str, *, allow: Sequence[Network]) -> httpx.URL:
    """A callback as it may be stored; an address that is written out is judged here, a name when it is called."""
    field = "callbackUrl"
    if len(url) > MAX_URL:
        raise InvalidSubscription(field, f"expected at most {MAX_URL} characters, got {len(url)}")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise InvalidSubscription(field, "expected an absolute http or https URL") from None
    if parsed.scheme not in ("http", "https") or not _HOST.fullmatch(parsed.raw_host):
        raise InvalidSubscription(field, "expected an absolute http or https URL")
    if parsed.userinfo:
        raise InvalidSubscription(field, "expected no user or password in the URL; `secret` is the place for them")
    if parsed.fragment:
        raise InvalidSubscription(field, "expected no fragment (#…): it would never be sent")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise InvalidSubscription(field, "expected a port from 1 to 65535")
    written = _written_out(parsed.raw_host.decode("ascii"))
    if written and not any(is_permitted(address, allow) for address in written):
        raise InvalidSubscription(field, _refusal(parsed.host, written))
    return parsed


def _written_out(host: str) -> list[Address]:
    """The addresses that a host means without asking any server; empty for a name."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return [IPv4Address("127.0.0.1"), IPv6Address("::1")]
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [ip_address(answer[4][0]) for answer in answers]


def _carried(address: Address) -> IPv4Address | None:
    """The IPv4 address that a packet to this one ends up at, where the form alone says so."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def _refusal(host: str, found: Sequence[Address]) -> str:
    shown = ", ".join(str(address) for address in found)
    meaning = "" if shown == host else f" ({shown})"
    return (
        f"{host}{meaning} is not a public address; PLATFORM_WEBHOOK_ALLOW names networks that are allowed all the same"
    )
