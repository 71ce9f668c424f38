"""What a webhook's settings make of deliveries: body and headers, by its templates when it has some.

Takes the settings, then deliveries; returns bytes and texts. Pure. Raises ValueError for a template that is
none, one of RENDER_FAULTS for alerts that nothing can be made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from common.faults import Path
from common.units import Secret
from common.webhook_parts import value_fault
from dispatcher.destinations import trial
from dispatcher.destinations.base import Delivery, Unrenderable
from dispatcher.destinations.payload import batch_body, body
from dispatcher.destinations.template import Template, names_of, templated

LONGEST_VALUE = 4096  # characters of a header made by a template; many servers take 8 KiB of all of them


class Composer:
    """Body and headers of one destination."""

    def __init__(self, template: Secret | None, headers: Mapping[str, Secret]) -> None:
        self._body = None if template is None else _compiled("template", template)
        self._headers = {
            name.lower(): _compiled(f"headers.{name}", value)
            for name, value in headers.items()
            if templated(value.reveal())
        }

    def compose(self, deliveries: Sequence[Delivery]) -> tuple[bytes, dict[str, str]]:
        """The body, and the headers that templates make."""
        names = names_of(deliveries) if self._body is not None or self._headers else {}
        headers = {name: _value(name, template, names) for name, template in self._headers.items()}
        if self._body is not None:
            return self._body.render(names).encode(), headers
        return body(deliveries[0]) if len(deliveries) == 1 else batch_body(deliveries), headers


def fixed(headers: Mapping[str, Secret]) -> dict[str, Secret]:
    """The headers that are the same in every request."""
    return {name: value for name, value in headers.items() if not templated(value.reveal())}


def faults(
    template: Secret | None, headers: Mapping[str, Secret], batches: bool
) -> Iterator[tuple[Path, str]]:
    """What is wrong with the templates, below the destination."""
    if template is not None:
        look = trial.json_fault if _is_json(headers) else _encodable
        wrong = trial.fault(template.reveal(), batches=batches, look=look)
        if wrong is not None:
            yield ("template",), wrong
    for name, value in headers.items():
        if templated(value.reveal()):
            wrong = trial.fault(value.reveal(), batches=batches, most=LONGEST_VALUE, look=value_fault)
            if wrong is not None:
                yield ("headers", name), wrong


def _compiled(setting: str, text: Secret) -> Template:
    try:
        return Template(text.reveal())
    except ValueError as fault:
        raise ValueError(f"{setting}: {fault}") from None


def _value(name: str, template: Template, names: Mapping[str, object]) -> str:
    try:
        value = template.render(names, LONGEST_VALUE).strip()
    except Unrenderable as fault:
        raise Unrenderable(f"header {name}: {fault}") from fault
    if wrong := value_fault(value):
        raise Unrenderable(f"header {name}: {wrong}")
    return value


def _is_json(headers: Mapping[str, Secret]) -> bool:
    """Whether the body says that it is JSON, as it does unless the headers say otherwise."""
    told = [value.reveal() for name, value in headers.items() if name.lower() == "content-type"]
    media = told[0].partition(";")[0].strip().lower() if told else "application/json"
    return media == "application/json" or media.endswith("+json")


def _encodable(rendered: str) -> None:
    """A body that is no JSON may be anything."""
