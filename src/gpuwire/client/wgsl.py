"""What a kernel's WGSL source says of its interface: buffers, entry points, parameters.

Read from its tokens, comments aside; whether it compiles is for the device to say (WGSL, "Textual
Structure", "Attributes", "Resource Interface").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuwire.errors import ArgumentError

WorkgroupSize = tuple[int, int, int]

_COMMENT = re.compile(r"//|/\*")
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_ATTRIBUTES = r"((?:@\s*\w+\s*(?:\([^()]*\)\s*)?)+)"
_ATTRIBUTE = re.compile(r"@\s*(\w+)\s*(?:\(([^()]*)\))?")
_RESOURCE = re.compile(_ATTRIBUTES + r"var\b\s*(?:<([^<>]*)>)?\s*(\w+)")
_FUNCTION = re.compile(_ATTRIBUTES + r"fn\s+(\w+)")
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[iu]?")
_PARAMETER = re.compile(r"\bparams\b(?:\s*\[\s*(\d+)[iu]?\s*\]\s*(?:\.\s*([xyzwrgba]))?)?")
_LANES = {**dict(zip("xyzw", range(4), strict=True)), **dict(zip("rgba", range(4), strict=True))}


@dataclass(frozen=True, slots=True)
class Buffer:
    """One storage buffer that a source declares."""

    name: str
    written: bool
    """Declared `read_write`."""


@dataclass(frozen=True, slots=True)
class Interface:
    """What a launch of one entry point must bring."""

    buffers: tuple[Buffer, ...]
    """In the order of their bindings, which are 0, 1, …"""
    workgroup_size: WorkgroupSize
    reads_params: bool
    least_words: int
    """Parameter words that the source reads by constant indices."""
    folds: bool
    """Whether it knows how many workgroups there are, so that it can number those of a grid that
    is folded over several dimensions."""
    loops: bool
    """Whether it has loops."""


def interface(
    source: str, entry_point: str, workgroup_size: int | tuple[int, ...] | None
) -> Interface:
    """The interface of an entry point. `workgroup_size` is needed where the source does not say it
    in numbers. Raises ArgumentError for an entry point that is not there, a resource that is no
    storage buffer, bindings that are not 0, 1, … of group 0, and sizes that disagree."""
    text = without_comments(source)
    least = 0
    reads_params = False
    for found in _PARAMETER.finditer(text):
        reads_params = True
        if found[1] is not None:
            least = max(least, 4 * int(found[1]) + (_LANES[found[2]] if found[2] else 0) + 1)
    return Interface(
        _buffers(text),
        _workgroup_size(text, entry_point, workgroup_size),
        reads_params,
        least,
        re.search(r"@\s*builtin\s*\(\s*num_workgroups\b", text) is not None,
        re.search(r"\b(?:for|while|loop)\b", text) is not None,
    )


def without_comments(source: str) -> str:
    """The source with its comments left out; block comments nest. Lines keep their numbers."""
    kept: list[str] = []
    place = 0
    while opening := _COMMENT.search(source, place):
        kept.append(source[place : opening.start()])
        if opening[0] == "//":
            place = source.find("\n", opening.end())
            place = len(source) if place < 0 else place
        else:
            place = _block_end(source, opening.end())
        kept.append(" " + "\n" * source.count("\n", opening.start(), place))
    kept.append(source[place:])
    return "".join(kept)


def _block_end(source: str, start: int) -> int:
    """Where the block comment that is open at `start` ends."""
    depth = 1
    for edge in _BLOCK_EDGE.finditer(source, start):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return len(source)


def _buffers(text: str) -> tuple[Buffer, ...]:
    found: dict[int, Buffer] = {}
    for attributes, kind, name in _RESOURCE.findall(text):
        places: dict[str, str] = dict(_ATTRIBUTE.findall(attributes))
        if "binding" not in places and "group" not in places:
            continue
        group, binding = _number(places, "group", name), _number(places, "binding", name)
        words = [word.strip() for word in kind.split(",") if word.strip()]
        if not words or words[0] != "storage":
            raise ArgumentError(
                f"the kernel declares {name!r} as {words[0] if words else 'a texture or sampler'}: "
                "arrays are bound as var<storage, …>, and scalars come as params"
            )
        if group != 0 or binding in found:
            raise ArgumentError(
                f"the kernel declares {name!r} at @group({group}) @binding({binding}): arrays are "
                "bound at @group(0), each at a @binding of its own"
            )
        found[binding] = Buffer(name, "read_write" in words[1:])
    if sorted(found) != list(range(len(found))):
        raise ArgumentError(
            f"the kernel's arrays are at bindings {sorted(found)}: they must be 0, 1, … with no gap"
        )
    return tuple([found[binding] for binding in range(len(found))])


def _number(places: dict[str, str], word: str, name: str) -> int:
    number = _NUMBER.fullmatch(places.get(word, "").strip().rstrip(",").strip())
    if number is None:
        raise ArgumentError(
            f"the kernel's {name!r} needs @group and @binding with plain numbers, such as "
            "@group(0) @binding(1)"
        )
    return int(number[1], 0)


def _workgroup_size(
    text: str, entry_point: str, wanted: int | tuple[int, ...] | None
) -> WorkgroupSize:
    entries = {}
    for attributes, name in _FUNCTION.findall(text):
        places = dict(_ATTRIBUTE.findall(attributes))
        if "compute" in places:
            entries[name] = places.get("workgroup_size", "")
    if entry_point not in entries:
        there = ", ".join(entries) or "none"
        raise ArgumentError(
            f"the kernel has no entry point {entry_point!r} (a @compute fn); it has {there}"
        )
    parts = [part.strip() for part in entries[entry_point].split(",") if part.strip()]
    numbers = [_NUMBER.fullmatch(part) for part in parts]
    said: WorkgroupSize | None = None
    if numbers and all(numbers):
        said = _filled([int(number[1], 0) for number in numbers if number])
    given = None
    if wanted is not None:
        given = _filled([wanted] if isinstance(wanted, int) else list(wanted))
    if said is not None and given is not None and said != given:
        raise ArgumentError(
            f"workgroup_size is {given}, and the source says {said} at {entry_point!r}"
        )
    size = said or given
    if size is None:
        raise ArgumentError(
            f"the source does not say the workgroup size of {entry_point!r} in numbers: pass "
            "workgroup_size=(x, y, z)"
        )
    return size


def _filled(numbers: list[int]) -> WorkgroupSize:
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise ArgumentError(f"a workgroup size of {numbers}: one to three numbers of 1 or more")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z
