"""A model behind an OpenAI-compatible endpoint: a receiver with scripted answers; and settings to reach it.

`async with Model() as model`: `answers` are given in order, then `default`. What was asked is in `requests`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from common.units import Secret
from dispatcher.destinations.summary import Settings
from tests.support.receiver import Answer, Receiver

SAID = "The disk of db1 is nearly full."


def completion(content: Any, finish_reason: str = "stop") -> bytes:
    """The body of an answer."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    told = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice]}
    return json.dumps({**told, "usage": {"prompt_tokens": 9, "completion_tokens": 9}}).encode()


def says(content: Any = SAID, finish_reason: str = "stop", **answer: Any) -> Answer:
    """A good answer with this text; further arguments are the answer's own."""
    headers = {"content-type": "application/json"}
    return Answer(body=completion(content, finish_reason), headers=headers, **answer)


def refuses(status: int, said: Any = "no", headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with an error in the protocol's form."""
    body = json.dumps({"error": {"message": said, "type": "some_error", "code": None}}).encode()
    return Answer(status=status, headers=headers or {}, body=body)


class Model(Receiver):
    """Says the same until told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.default = says()

    @property
    def base(self) -> str:
        """The url of a destination."""
        return self.url + "v1"

    def asked(self) -> list[dict[str, Any]]:
        """The bodies of all requests so far."""
        return [request.json() for request in self.requests]


def summary(url: str | None = "http://127.0.0.1:1/v1", **settings: Any) -> Settings:
    """A summary's settings; loopback is allowed unless told otherwise."""
    given: dict[str, Any] = {
        "name": "summarizer",
        "type": "summary",
        "url": None if url is None else Secret(url),
        "model": "small",
        "then": ["chat"],
        "allow_private": True,
    }
    return Settings(**given | settings)
