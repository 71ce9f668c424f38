"""Runs `redispatch` against a server of the tests, in this process, as `redispatch("status", "--json")`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from ops.cli import main
from tests.support.fleet import Where


class Command:
    """The command with a configuration of its own; `destinations` are of type discard."""

    def __init__(
        self, directory: Path, server: Where, destinations: tuple[str, ...] = ("pager", "chat")
    ) -> None:
        self.server = server
        self.config = directory / "redispatch.yaml"
        self.sections: dict[str, Any] = {
            "redis": {"url": server.url, "timeout": "10s"},
            "destinations": [{"name": name, "type": "discard"} for name in destinations],
            "routes": [{"to": list(destinations)}],
        }

    def __call__(self, *words: str, code: int = 0) -> Result:
        """Run it; it must end with that exit code, and never with a traceback."""
        self.config.write_text(yaml.safe_dump(self.sections))
        environ = {"REDISPATCH_CONFIG": str(self.config), "REDISPATCH_REDIS_URL": None, "COLUMNS": "80"}
        result = CliRunner(env=environ).invoke(main, words)
        assert result.exit_code == code, f"{result.output}\n{result.exc_info}"
        assert "Traceback" not in result.output
        return result

    def json(self, *words: str, code: int = 0) -> Any:
        """What `--json` prints."""
        return json.loads(self(*words, "--json", code=code).stdout)


def drained(master: int) -> bytes:
    """What else a terminal is sent, until the other side closes it."""
    shown = b""
    try:
        while more := os.read(master, 65536):
            shown += more
    except OSError:  # how Linux says that nobody is on the other side any more
        pass
    os.close(master)
    return shown
