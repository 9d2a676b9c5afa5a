"""Whether an object has no other holder: what is then changed in place is changed for nobody else.

Counts are CPython's. They are compared with those of an object that surely has one holder, counted
by the same code, since what a count includes differs from version to version.
"""

from __future__ import annotations

import sys


def sole_holders(objects: tuple[object, ...], holders: int = 0) -> list[bool]:
    """For each object whether it is held by this tuple and `holders` others alone. A local variable
    that names one is a holder; one that names the tuple is not."""
    (alone,) = map(sys.getrefcount, (_Probe(),))
    return [count <= alone + holders for count in map(sys.getrefcount, objects)]


class _Probe:
    __slots__ = ()
