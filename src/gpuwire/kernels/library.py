"""The WGSL functions that generated kernels call.

They lie in `wgsl/*.wgsl`. A file with `$T` (and `$C`) in it is a template that is written out for
each type it serves. A kernel carries the definitions it uses and no others: llvmpipe and the
drivers spend most of a compilation on text that nobody calls.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from itertools import pairwise

_TEMPLATES: tuple[tuple[str, tuple[dict[str, str], ...]], ...] = (
    ("float32.wgsl", ({},)),
    ("float64.wgsl", ({},)),
    ("real.wgsl", ({"T": "f32"}, {"T": "f64"})),
    ("half.wgsl", ({},)),
    ("integer.wgsl", ({"T": "i32"}, {"T": "u32"}, {"T": "i64"}, {"T": "u64"})),
    ("signed.wgsl", ({"T": "i32"}, {"T": "i64"})),
    ("unsigned.wgsl", ({"T": "u32"}, {"T": "u64"})),
    ("complex.wgsl", ({"C": "complex64", "T": "f32"}, {"C": "complex128", "T": "f64"})),
)

_DEFINITION = re.compile(r"^(?:fn|const|struct)\s+(\w+)", re.MULTILINE)
_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*\b")


def definitions_for(text: str) -> str:
    """The library definitions that `text` uses, directly or through one another."""
    known = _definitions()
    wanted = [name for name in _identifiers(text) if name in known]
    found: dict[str, str] = {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = known[name]
            wanted.extend(used for used in _uses(name) if used not in found)
    return "\n".join(found[name] for name in sorted(found))


def defines(name: str) -> bool:
    """Whether the library has a definition of that name."""
    return name in _definitions()


def _identifiers(text: str) -> list[str]:
    return sorted(set(_IDENTIFIER.findall(text)))


@cache
def _uses(name: str) -> tuple[str, ...]:
    known = _definitions()
    return tuple(used for used in _identifiers(known[name]) if used in known and used != name)


@cache
def _definitions() -> dict[str, str]:
    found: dict[str, str] = {}
    folder = resources.files("gpuwire.kernels") / "wgsl"
    for file, substitutions in _TEMPLATES:
        text = re.sub(r"[ \t]*//[^\n]*", "", (folder / file).read_text("utf-8"))
        for substitution in substitutions:
            written = text
            for placeholder, value in substitution.items():
                written = written.replace(f"${placeholder}", value)
            starts = [match.start() for match in _DEFINITION.finditer(written)]
            for start, end in pairwise([*starts, len(written)]):
                body = written[start:end].strip()
                match = _DEFINITION.match(body)
                assert match is not None
                found[match[1]] = body
    return found
