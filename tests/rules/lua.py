"""What a Lua file says at its top and does below: read as text, for the rules about scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

KEYLESS = {"TIME"}
SUBCOMMANDS = {"XINFO", "XGROUP"}  # their key comes after a word
TYPES = {"X": "stream", "Z": "sorted set", "H": "hash", "S": "set"}  # by a command's first letter
STRINGS = {"GET", "SET", "MGET"}
WRITING = {
    *("XADD", "XDEL", "XACK", "XCLAIM", "XGROUP", "ZADD", "ZREM", "SET", "HSET", "HINCRBY", "HDEL", "DEL"),
    *("PEXPIRE", "PEXPIREAT", "SADD", "SREM"),
}
_LOCALS = re.compile(r"local ([\w, ]+?) = (.+)")
_FUNCTION = re.compile(r"function ([\w.]+)\(([\w, ]*)\)")
_DISPATCH = re.compile(r"local (\w+) = \{((?: \w+ = \w+,?)+) \}")


class Call(Struct, frozen=True):
    """One `redis.call`: its command and the expression that stands for its key, "" when there is none."""

    command: str
    key: str


def code(text: str) -> str:
    """Without comments."""
    return re.sub(r"--.*", "", text)


def calls(text: str) -> Iterator[Call]:
    """Every call of the file."""
    for found in re.finditer(r"redis\.p?call\('(\w+)'((?:[^()]|\([^()]*\))*)", code(text)):
        command, rest = found[1], [part.strip() for part in _split(found[2].lstrip(", "))]
        at = 1 if command in SUBCOMMANDS else 0
        if "'STREAMS'" in rest:
            at = rest.index("'STREAMS'") + 1
        yield Call(command, "" if command in KEYLESS else rest[at] if len(rest) > at else "")


def out_of_keys(text: str) -> set[str]:
    """The names that stand for keys out of KEYS: locals, parameters that are only given such, `s.record`."""
    body = code(text)
    known = {name for name, value in _assigned(body) if value.startswith("KEYS[")}
    functions = {name: _split(parameters) for name, parameters in _FUNCTION.findall(body)}
    while True:
        found = known | set(_parameters(body, functions, known)) | set(_fields(body, known))
        if found == known:
            return known
        known = found


def _assigned(body: str) -> Iterator[tuple[str, str]]:
    for names, values in _LOCALS.findall(body):
        yield from zip(_split(names), _split(values), strict=False)


def _parameters(body: str, functions: dict[str, list[str]], known: set[str]) -> Iterator[str]:
    """Parameters that every call of their function fills with a key."""
    tables = {table: re.findall(r"\w+ = (\w+)", inner) for table, inner in _DISPATCH.findall(body)}
    for function, parameters in functions.items():
        through = [table for table, members in tables.items() if function in members]
        given = list(_given(body, function, through))
        for place, parameter in enumerate(parameters):
            values = [arguments[place] for arguments in given if place < len(arguments)]
            if values and all(is_key(value, known) for value in values):
                yield parameter


def _given(body: str, function: str, tables: list[str]) -> Iterator[list[str]]:
    names = "|".join([re.escape(function), *(rf"{table}\[\w+\]" for table in tables)])
    for found in re.finditer(rf"(function )?(?<![\w.])(?:{names})\(((?:[^()]|\([^()]*\))*)\)", body):
        if not found[1]:
            yield _split(found[2])


def _fields(body: str, known: set[str]) -> Iterator[str]:
    for table, inner in re.findall(r"local (\w+) = \{([^}]*)\}", body):
        for field, value in re.findall(r"(\w+) = (\w+)", inner):
            if value in known:
                yield f"{table}.{field}"


def is_key(value: str, known: set[str]) -> bool:
    """Whether an expression is a key out of KEYS."""
    return value in known or value.startswith(("KEYS[", "unpack(KEYS"))


def _split(text: str) -> list[str]:
    """At the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
