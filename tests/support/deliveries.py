"""Deliveries and destinations for tests, with what they need and nothing more."""

from __future__ import annotations

from typing import Any

from common.alert import Alert
from common.units import Secret
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.webhook import Settings

AT = 1_764_438_120_042  # 2025-11-29T17:42:00.042Z


def alert(**fields: Any) -> Alert:
    """An alert; fields replace the defaults."""
    given: dict[str, Any] = {"incident": "db1:disk", "host": "db1", "name": "disk", "timestamp": AT}
    return Alert(**given | fields)


def delivery(key: str = "db1:disk:1", attempt: int = 1, of: Alert | None = None) -> Delivery:
    """A delivery of an alert."""
    return Delivery(
        entry_id="1-1",
        deliveries=1,
        key=key,
        alert=alert() if of is None else of,
        attempt=attempt,
        first_at=AT,
    )


def webhook(url: str = "http://127.0.0.1:1/hook", **settings: Any) -> Settings:
    """A webhook's settings; loopback is allowed unless told otherwise."""
    given: dict[str, Any] = {"name": "pager", "type": "webhook", "url": Secret(url), "allow_private": True}
    return Settings(**given | settings)
