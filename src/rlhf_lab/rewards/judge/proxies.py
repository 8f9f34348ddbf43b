"""Proxies that the environment sets for a judge's endpoint."""

from __future__ import annotations

import ipaddress
from importlib.util import find_spec
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rlhf_lab.types.errors import UserError


def is_loopback(url: str) -> bool:
    """Whether an address is of this machine alone, which no proxy reaches."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_of(url: str) -> str:
    """The proxy for an address, without its user and password; "" for none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(url) or proxy_bypass(host):
        return ""
    proxies = getproxies()
    return shown(proxies.get(parts.scheme) or proxies.get("all", ""))


def require_proxies(key: str, url: str) -> None:
    """Refuse a SOCKS proxy without the package for it. key: of the address."""
    if is_loopback(url) or find_spec("socksio"):
        return
    for scheme in ("http", "https", "all"):
        if (proxy := getproxies().get(scheme, "")).startswith("socks"):
            raise UserError(
                f"{key}={url}: the environment sets the proxy {scheme}_proxy={shown(proxy)}, which "
                f"needs a package: pip install socksio, or unset the variable for this run"
            )


def shown(proxy: str) -> str:
    scheme, _, rest = proxy.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]
