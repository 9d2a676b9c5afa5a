"""Which line of the user's program recorded an operation.

A line is named by a number that travels with the operation; its text stays here and is looked up
when the server reports that number with a failure. Cost on the way in: 60 to 80 ns for each
gpuwire frame on the stack and one dictionary look-up for the user's, about 0.5 µs at the depth
that array operators have. What makes it cheap is that a line's number is found by code object and
instruction: `f_lineno` decodes a code object's line table from its start, 1 to 10 µs in a long
function.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType

from gpuwire.ids import LocationId

UNKNOWN = LocationId(0)

_PACKAGE = str(Path(__file__).parent.parent) + "/"
_CODE_OBJECTS_MAX = 16_384
_LINES_MAX = 1_000_000

_Lines = dict[int, LocationId]


class LocationTable:
    """The lines of one session's program. Not thread-safe: the recorder's lock guards it."""

    def __init__(self, package: str = _PACKAGE) -> None:
        """`package` is the prefix of the file names whose frames are not the user's."""
        self._package = package
        self._lines_of: dict[int, _Lines | None] = {}
        self._codes: list[CodeType] = []
        self._ids: dict[tuple[str, int], LocationId] = {}
        self._texts: list[str | None] = [None]

    def here(self, depth: int = 1) -> LocationId:
        """The line of the innermost caller outside the package; 0 if there is none. The first
        `depth` frames, this one included, are known not to be the user's."""
        frame: FrameType | None = sys._getframe(depth)
        lines_of = self._lines_of
        while frame is not None:
            code = frame.f_code
            try:
                lines = lines_of[id(code)]
            except KeyError:
                lines = self._note(code)
            if lines is not None:
                location = lines.get(frame.f_lasti)
                if location is None:
                    location = self._intern(code.co_filename, frame.f_lineno)
                    lines[frame.f_lasti] = location
                return location
            frame = frame.f_back
        return UNKNOWN

    def text(self, location: int) -> str | None:
        """`file:line` of a location; None for 0 and for numbers never handed out."""
        return self._texts[location] if 0 <= location < len(self._texts) else None

    def _note(self, code: CodeType) -> _Lines | None:
        """Starts the table of one code object; None for the package's own."""
        if len(self._codes) >= _CODE_OBJECTS_MAX:
            self._lines_of.clear()
            self._codes.clear()
        # Kept alive, so that no other code object can get the same id().
        self._codes.append(code)
        lines: _Lines | None = None if code.co_filename.startswith(self._package) else {}
        self._lines_of[id(code)] = lines
        return lines

    def _intern(self, file: str, line: int) -> LocationId:
        location = self._ids.get((file, line))
        if location is None:
            if len(self._texts) > _LINES_MAX:
                return UNKNOWN
            location = LocationId(len(self._texts))
            self._ids[file, line] = location
            self._texts.append(f"{file}:{line}")
        return location
