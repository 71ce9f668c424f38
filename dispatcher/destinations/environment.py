"""Proxies of the environment: takes a destination's URL, returns the proxy that HTTP_PROXY and the like name.

Asked once, when a destination is made, and only when its settings say so. Raises ValueError.
"""

from __future__ import annotations

from urllib.request import getproxies_environment, proxy_bypass

from yarl import URL


def proxy(url: URL) -> URL | None:
    """The proxy for this address, None when there is none or NO_PROXY has the host."""
    given = getproxies_environment()
    text = given.get(url.scheme) or given.get("all")
    if text is None or proxy_bypass(url.host_port_subcomponent or ""):
        return None
    try:
        found = URL(text)
    except ValueError:
        found = URL()
    if found.scheme not in ("http", "https") or not found.host:
        raise ValueError("the proxy in the environment is not of the form http://host:port")
    return found
