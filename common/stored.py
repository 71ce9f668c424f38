"""What the places of objects have in common: how they are named, what they say of an object, and what can go
wrong there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

PAGE = 1000  # objects in one page of a listing
SCHEMES = ("file", "s3", "gs", "az", "memory")


class Away(Exception):
    """The store does not answer, or refuses: nothing is known of the object. The text is without secrets."""


class Broken(Exception):
    """What is there is not what was put there."""


class Missing(Broken):
    """The store answers, and has no such object."""

    def __init__(self) -> None:
        super().__init__("there is no such object")


class Found(Struct, frozen=True):
    """An object in a listing: its path, and when it was written (the store's clock, ms)."""

    path: str
    written_at: int


def scheme(url: str) -> str | None:
    """What a URL begins with; None for a path."""
    told, separator, _ = url.partition("://")
    return told if separator else None


def resolved(url: str, directory: Path) -> str:
    """A path, relative to `directory`, or file:// as an absolute path; any other URL as it is."""
    told = scheme(url)
    if told == "file":
        url = unquote(urlsplit(url).path)
    return str((directory / url).absolute()) if told in (None, "file") else url


def fault(url: str) -> str | None:
    """What is wrong with it, as far as it can be seen without asking."""
    told = scheme(url)
    rest = url.partition("://")[2]
    if told is None:
        return None if url and "\0" not in url else "expected a path or a URL"
    if told not in SCHEMES:
        return f"expected a path, or a URL that begins with {', '.join(f'{each}://' for each in SCHEMES)}"
    if "@" in rest.split("/", 1)[0] or "?" in rest:
        return "expected a URL without credentials and options: those come from the environment"
    if told == "file" and not rest.startswith("/"):
        return "expected an absolute path behind file://, or a path alone"
    return None if rest or told == "memory" else f"expected the bucket's name behind {told}://"
