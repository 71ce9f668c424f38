"""What all pages and actions of the console work with, in one place; made and changed by `serve`."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from redis.asyncio import Redis

from common.objects import Objects
from common.settings import Settings
from common.wire import Wire
from ingest.receipt import Receipts
from ops.console.door import Door, Guest
from ops.console.form import Fields
from ops.console.jobs import Jobs
from ops.console.live import Live
from ops.console.metrics import Metrics
from ops.console.watch import Watch

NOTES = 200


class Notes:
    """What came of an action, for the page that is shown after it; each is shown once."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, str] = OrderedDict()

    def leave(self, text: str) -> str:
        """The name to take it by."""
        name = secrets.token_urlsafe(8)
        self._of[name] = text
        while len(self._of) > NOTES:
            self._of.popitem(last=False)
        return name

    def take(self, name: str) -> str:
        """The text; empty when it was shown before."""
        return self._of.pop(name, "")


@dataclass
class Desk:
    """Of one process."""

    settings: Settings
    redis: Redis
    wire: Wire
    door: Door
    watch: Watch
    live: Live
    jobs: Jobs
    metrics: Metrics
    notes: Notes = field(default_factory=Notes)

    @property
    def namespace(self) -> str:
        """The first part of every key."""
        return self.settings.redis.namespace

    @property
    def objects(self) -> Objects:
        """Where large alerts are."""
        return Objects(self.settings.objects.url, self.namespace)

    @property
    def receipts(self) -> Receipts:
        """What has become of an alert."""
        names = [destination.name for destination in self.settings.destinations]
        return Receipts(self.wire, self.namespace, names, self.metrics.troubled)


@dataclass(frozen=True)
class Visit:
    """One request: whose, for which path, and what its address or its form says."""

    guest: Guest
    path: str
    fields: Fields
