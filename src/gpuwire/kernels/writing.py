"""What the source of every generated kernel has in common: bindings, parameters, the numbering of
invocations, and index arithmetic over strided operands."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.library import definitions_for


def param(word: int) -> str:
    """Parameter word `word`, a u32."""
    return f"params[{word // 4}][{word % 4}]"


class KernelWriter:
    """Collects a kernel's bindings, parameter words and statements, and makes the source of them.

    Bindings and parameters are numbered in the order in which they are asked for; whoever launches
    the kernel hands buffers and words in that order.
    """

    def __init__(self, name: str, workgroup_size: int) -> None:
        self._name = name
        self._workgroup_size = workgroup_size
        self._declarations: list[str] = []
        self._functions: list[str] = []
        self._accesses: list[Access] = []
        self._features: set[str] = set()
        self._words = 0
        self.lines: list[str] = []
        """The statements of the entry point."""

    def buffer(self, name: str, element: str, access: Access) -> None:
        """Declare the next binding, an array of `element`."""
        mode = "read" if access is Access.READ else "read_write"
        self._declarations.append(
            f"@group(0) @binding({len(self._accesses)}) "
            f"var<storage, {mode}> {name}: array<{element}>;"
        )
        self._accesses.append(access)

    def workgroup_array(self, name: str, element: str, length: int) -> None:
        """Declare an array that a workgroup shares."""
        self._declarations.append(f"var<workgroup> {name}: array<{element}, {length}>;")

    def function(self, text: str) -> None:
        """Add a definition of the kernel's own."""
        self._functions.append(text)

    def words(self, count: int = 1) -> int:
        """Reserve parameter words; the number of the first."""
        first = self._words
        self._words += count
        return first

    def needs(self, features: frozenset[str]) -> None:
        """Note wgpu features that the source needs."""
        self._features |= features

    def write(self, *lines: str) -> None:
        """Add statements."""
        self.lines.extend(lines)

    def item(self, count: str) -> None:
        """Bind `item` to the invocation's number and leave where it is not below `count`."""
        self.workgroup()
        self.write(
            f"let item = group * {self._workgroup_size}u + lane;",
            f"if item >= {count} {{ return; }}",
        )

    def workgroup(self) -> None:
        """Bind `group` to the workgroup's number; `lane` is the invocation's number in it."""
        self.write("let group = (wid.z * grid.y + wid.y) * grid.x + wid.x;")

    def finish(self) -> Kernel:
        """The kernel."""
        body = "\n".join(f"    {line}" for line in self.lines)
        main = (
            f"@compute @workgroup_size({self._workgroup_size})\n"
            "fn main(@builtin(workgroup_id) wid: vec3<u32>, "
            "@builtin(num_workgroups) grid: vec3<u32>,\n"
            "        @builtin(local_invocation_index) lane: u32) {\n"
            f"{body}\n}}\n"
        )
        own = "\n\n".join(self._functions)
        parts = ["\n".join(self._declarations), definitions_for(own + main), own, main]
        return Kernel(
            name=self._name,
            source="\n\n".join(part for part in parts if part),
            access=tuple(self._accesses),
            workgroup_size=(self._workgroup_size, 1, 1),
            params_words=self._words,
            features=frozenset(self._features),
            trusted=True,
        )


def split_index(index: str, shape_word: int, rank: int, prefix: str) -> tuple[list[str], list[str]]:
    """Statements that take a linear row-major index apart, and the names of the `rank` indices.

    The lengths are parameter words from `shape_word` on; the first is never read, since what is
    left over is the first index.
    """
    names = [f"{prefix}{axis}" for axis in range(rank)]
    lines = []
    rest = index
    for axis in range(rank - 1, 0, -1):
        length = param(shape_word + axis)
        lines.append(f"let {names[axis]} = {rest} % {length};")
        lines.append(f"let {prefix}r{axis} = {rest} / {length};")
        rest = f"{prefix}r{axis}"
    if rank:
        lines.append(f"let {names[0]} = {rest};")
    return lines, names


def strided_index(offset_word: int | None, stride_word: int, indices: Sequence[str]) -> str:
    """An element's index: offset and strides are parameter words, two's complement, so that
    negative strides come out right modulo 2^32."""
    terms = [] if offset_word is None else [param(offset_word)]
    terms += [f"{name} * {param(stride_word + axis)}" for axis, name in enumerate(indices)]
    return " + ".join(terms) if terms else "0u"
