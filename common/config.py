"""The configuration: read, filled in from the environment, converted, checked; all faults at once.

Takes the path of a YAML file; returns frozen `Settings`. Raises ConfigError, each of whose faults names its
place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import cast

from msgspec import Struct, inspect, structs

from common import cross_checks, destinations, references, stored
from common.convert import convert
from common.document import read
from common.faults import ConfigError, Fault, Report
from common.kinds import Kinds
from common.settings import Ingest, Objects, Settings

__all__ = ["ConfigError", "Fault", "Loaded", "load", "load_with_places"]

DEFAULT = "redispatch.yaml"


class Loaded(Struct, frozen=True):
    """Settings, and the report that knows where each of them stands."""

    settings: Settings
    report: Report


def load(path: str | None, environ: Mapping[str, str] | None = None, kinds: Kinds | None = None) -> Settings:
    """The settings of `path`, or of $REDISPATCH_CONFIG, or of ./redispatch.yaml. Raises ConfigError.

    Without `kinds` destinations have only what every destination has, and the rest of them is not looked at.
    """
    return load_with_places(path, environ, kinds).settings


def load_with_places(
    path: str | None, environ: Mapping[str, str] | None = None, kinds: Kinds | None = None
) -> Loaded:
    """Like `load`, for whoever has something to say about the settings. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    report = Report(path or environ.get("REDISPATCH_CONFIG") or DEFAULT)
    schema = cast(inspect.StructType, inspect.type_info(Settings))
    root = read(report)
    references.override(root, environ, schema, report)
    if kinds is None:
        destinations.leave_out_specifics(root)
    references.expand(root, environ, (), report)
    to = destinations.take_out(root, kinds, report)
    settings = cast(Settings, convert(schema, root, (), report))
    settings = structs.replace(
        settings, destinations=to, objects=_objects(settings, report), ingest=_ingest(settings, report)
    )
    cross_checks.check(settings, kinds, report)
    report.end()
    return Loaded(settings, report)


def _objects(settings: Settings, report: Report) -> Objects:
    """With an absolute path, when it is one; reports what is wrong with it."""
    url = settings.objects.url
    wrong = stored.fault(url)
    if wrong is not None:
        report.fault(("objects", "url"), wrong)
        return settings.objects
    return Objects(url=stored.resolved(url, FilePath(report.file).parent))


def _ingest(settings: Settings, report: Report) -> Ingest:
    """With absolute paths."""
    directory, tls = FilePath(report.file).parent, settings.ingest.tls
    told = {name: getattr(tls, name) for name in tls.__struct_fields__}
    paths = {name: str((directory / path).absolute()) for name, path in told.items() if path}
    return structs.replace(settings.ingest, tls=structs.replace(tls, **paths)) if paths else settings.ingest
