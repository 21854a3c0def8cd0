"""Mutations: of JSON values, of bytes, and of protobuf messages, field by field."""

from __future__ import annotations

import copy
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

INTEGERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    255,
    256,
    65_535,
    1 << 20,
    1 << 31,
    -(1 << 31),
    (1 << 32) - 1,
    (1 << 63) - 1,
    -(1 << 63),
]
NUMBERS = [0.0, -0.0, 1.5, -1.0, 1e-45, 1e-30, 1e10, 3e38, 1e308, float("nan"), float("inf"), float("-inf")]
TEXTS = [
    "",
    "x",
    "\0",
    "\x1b[31m",
    "é\u202e",
    "..",
    "/",
    "../../etc/passwd",
    "A" * 300,
    "conv",
    "__class__",
    "\ud800",
    "\n",
]
#: JSON values of every type.
VALUES: list[Any] = [None, True, False, [], {}, [[]], {"a": 1}, [1, 2], ["x"], 10**30, *INTEGERS, *NUMBERS, *TEXTS]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _paths(inner, (*path, key))
    return found


def json_value(value: Any, rng: random.Random) -> Any:
    """Return a copy with one to three mutations: a value of another type, a key dropped, added, doubled or renamed."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(_paths(value))
        if not path:
            if rng.random() < 0.05:
                return rng.choice(VALUES)
            continue
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        key, way = path[-1], rng.random()
        if way < 0.15:
            del holder[key]
        elif way < 0.25 and isinstance(holder, dict):
            holder[rng.choice([*TEXTS[:-2], *holder])] = holder[key]
        elif way < 0.3 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(rng.choice([holder[key], rng.choice(VALUES)])))
        elif way < 0.5 and isinstance(holder[key], int):
            holder[key] = holder[key] + rng.choice([-1, 1, -2, 8, 64, -holder[key], holder[key]])
        elif way < 0.55 and isinstance(holder[key], str):
            holder[key] = holder[key][: rng.randrange(len(holder[key]) + 1)] + rng.choice(TEXTS)
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def raw(content: bytes, rng: random.Random) -> bytes:
    """Return bytes that are cut off, flipped, repeated, or have others put in."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(changed) + 1)
        way = rng.randrange(5)
        if way == 0:
            del changed[place:]
        elif way == 1 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif way == 2:
            changed[place:place] = rng.randbytes(rng.choice([1, 4, 100]))
        elif way == 3:
            changed[place:place] = changed[place : place + rng.choice([1, 16, 200])]
        else:
            del changed[place : place + rng.choice([1, 4, 50])]
    return bytes(changed)


def _messages(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                found += _messages(inner)
    return found


def _scalar(field: FieldDescriptor, before: Any, rng: random.Random) -> Any:
    """Return a value for a field, or ``None`` if it is no scalar."""
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice([*TEXTS[:-2], before or ""])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return raw(before or b"\0", rng)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice(NUMBERS)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return None
    limit = 1 << (31 if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32) else 63)
    unsigned = field.type in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64)
    near = (before or 0) + rng.choice([-1, 1, 2, 100])
    return min(max(rng.choice([*INTEGERS, near, near]), 0 if unsigned else -limit), limit - 1)


def message(model: Message, names: list[str], rng: random.Random) -> None:
    """Change one to three fields of a protobuf message: another value, one less, one twice, two swapped.

    Strings become others of ``names`` at times, so that tensors and operators meet that never should.
    """
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        owner = rng.choice(_messages(model))
        fields = [field for field, _ in owner.ListFields()]
        if rng.random() < 0.1 or not fields:
            fields = list(owner.DESCRIPTOR.fields)
        field = rng.choice(fields)
        value = getattr(owner, field.name)
        if field.is_repeated:
            _change_repeated(field, value, names, rng)
        elif rng.random() < 0.2:
            owner.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_STRING and rng.random() < 0.6:
            setattr(owner, field.name, rng.choice(names))
        elif (made := _scalar(field, value, rng)) is not None:
            setattr(owner, field.name, made)


def _change_repeated(field: FieldDescriptor, values: Any, names: list[str], rng: random.Random) -> None:
    way, place = rng.random(), rng.randrange(len(values)) if len(values) else 0
    if way < 0.25 and len(values):
        del values[place]
    elif way < 0.4 and len(values) > 1:
        other = rng.randrange(len(values))
        kept = list(values)
        kept[place], kept[other] = kept[other], kept[place]
        kept = [copy.deepcopy(each) for each in kept]
        del values[:]
        values.extend(kept)
    elif way < 0.55 and len(values):
        values.append(copy.deepcopy(values[place]))
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if not len(values):
            values.add()
    else:
        made = rng.choice(names) if field.type == FieldDescriptor.TYPE_STRING else _scalar(field, None, rng)
        if len(values) and rng.random() < 0.7:
            values[place] = made
        else:
            values.append(made)
