"""What an OpenAI-compatible endpoint answers: takes the body of a 2xx, returns the text that the model wrote.

Pure. Raises NoText for everything that is no usable text, and says why. What the model wrote is data: plain
text of a bounded length comes of it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec
from msgspec import Struct

from dispatcher.destinations.answer import short
from dispatcher.destinations.wording import cut

LONGEST = 2000  # characters of a summary

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)  # of models that think aloud
_JOINERS = "\u200c\u200d"  # within words and emoji


class NoText(ValueError):
    """There is no usable text in it; the message says why."""


class _Part(Struct):
    text: str = ""


class _Message(Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Choice(Struct):
    message: _Message | None = None
    finish_reason: str | None = None


class _Completion(Struct):
    choices: list[_Choice] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Completion).decode


def text_of(body: bytes) -> str:
    """The first choice's text. Raises NoText."""
    try:
        told = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise NoText(f"is no completion ({short(str(fault))})") from fault
    if told.error:
        raise NoText("is an error")
    if not told.choices or told.choices[0].message is None:
        raise NoText("has no choices")
    choice, message = told.choices[0], told.choices[0].message
    content = message.content
    written = content if isinstance(content, str) else "".join(part.text for part in content or ())
    text = clean(_THOUGHT.sub("", written, count=1))
    if not text or text.startswith("<think>"):
        because = "a refusal" if message.refusal else choice.finish_reason or "no reason given"
        raise NoText(f"has no text ({short(because)})")
    return cut(f"{text} …", LONGEST) if choice.finish_reason == "length" else text


def clean(text: str, most: int = LONGEST) -> str:
    """Lines of printable text, at most so many characters: no control characters, nothing that turns the
    direction of what follows, no empty lines."""
    lines = "".join(_printable(letter) for letter in text.strip()[: 4 * most]).split("\n")
    return cut("\n".join(line for line in (" ".join(each.split()) for each in lines) if line), most)


def _printable(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter in "\n\u2028\u2029":
        return "\n"
    return "" if unicodedata.category(letter) == "Cf" else " "
