"""Whether spans are made: when the environment asks OpenTelemetry for them, and its packages are there.

At the start of a service. Takes the service's name, returns a Telemetry (`otel.py`), or None: then nothing of
OpenTelemetry is imported, and nothing is asked again. What can't be used is told in the log, and is no reason
not to deliver alerts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from common.log import Log

if TYPE_CHECKING:
    from common.otel import Telemetry

ASKING = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")  # the first that is set
PROTOCOL = "http/protobuf"

log = Log("telemetry")


def begin(service: str, environ: Mapping[str, str] = os.environ) -> Telemetry | None:
    """What makes the spans of this process, which must not fork afterwards."""
    if not wanted(environ):
        return None
    wrong = _fault(environ)
    if wrong is None:
        try:
            from common.otel import start  # hundreds of modules, which most have no use for

            return start(service, environ)
        except ImportError:
            wrong = 'its packages are not there: pip install "redispatch[otel]"'
        except ValueError as fault:
            wrong = str(fault)
    log.warning("telemetry_off", error=wrong)
    return None


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for spans."""
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return not off and exporter != "none" and any(environ.get(name) for name in ASKING)


def _fault(environ: Mapping[str, str]) -> str | None:
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if exporter != "otlp":
        return f"OTEL_TRACES_EXPORTER: only otlp is there, not {exporter:.40}"
    told = next((name for name in PROTOCOLS if environ.get(name)), None)
    if told is not None and environ[told].strip().lower() != PROTOCOL:
        return f"{told}: only {PROTOCOL} is there, not {environ[told]:.40}"
    return None
