"""Planning elementwise programs: the form of kernel, the dimensions, the number of launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gpuwire.compute.sequences import BufferRange
from gpuwire.errors import LaunchError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import Node, ScalarRef
from gpuwire.ir.tensors import Shape, TensorType
from gpuwire.kernels import elementwise
from gpuwire.kernels.elementwise import elementwise_kernel
from gpuwire.kernels.expressions import OF_EACH_OPERAND
from gpuwire.kernels.programs import Load, LoadForm, Program, Result
from gpuwire.kernels.programs import Step as ProgramStep
from gpuwire.kernels.shader_types import QUAD
from gpuwire.lowering.builder import Operand, PlanBuilder, constant_words, scalar_words
from gpuwire.lowering.facts import BINDING_ALIGNMENT
from gpuwire.lowering.host_operations import runs_on_host
from gpuwire.lowering.layouts import Placed, Strides, broadcast_strides, collapsed
from gpuwire.lowering.plan_transposing import plan_transposing, runs_across


def compute_dtype(node: Node, operands: Sequence[DType]) -> DType:
    """The type in which an elementwise operation on operands of these types runs."""
    name = node.definition.name
    if name == "cast":
        return node.type.dtype
    if name in OF_EACH_OPERAND:
        return dt.bool_
    return dt.promote_all(tuple(operands[1:] if name == "where" else operands))


def runs_on_device(node: Node, operands: Sequence[DType]) -> bool:
    """Whether kernels have the operation in the type it runs in."""
    return not runs_on_host(node.definition.name, compute_dtype(node, operands))


def plan_elementwise(builder: PlanBuilder, node: Node, operands: Sequence[Operand]) -> Placed:
    """One elementwise operation."""
    step = ProgramStep(
        node.definition.name,
        tuple(range(len(operands))),
        compute_dtype(node, [operand.dtype for operand in operands]),
        node.type.dtype,
    )
    results = (Result(len(operands), node.type.dtype),)
    return plan_program(builder, (step,), operands, node.type.shape, results)[0]


def plan_copy(builder: PlanBuilder, operand: Operand, type_: TensorType) -> Placed:
    """A contiguous tensor of the operand's elements, broadcast and converted to `type_`."""
    if isinstance(operand, Placed) and operand.type == type_ and runs_across(builder, operand):
        return plan_transposing(builder, operand)
    return _plan_in_order(builder, (), [operand], type_.shape, (Result(0, type_.dtype),))[0]


def plan_constant(builder: PlanBuilder, value: float, type_: TensorType) -> Placed:
    """A contiguous tensor of one number."""
    result = builder.allocate(type_)
    if type_.size:
        dtype = type_.dtype
        program = Program((Load(dtype, LoadForm.SCALAR),), (), (Result(0, dtype),))
        constants = constant_words(value, dtype)
        quads = dtype.itemsize <= 4
        _Launches(builder, program, [result], [], (), constants, quads).plan((type_.size,))
    return result


def plan_program(
    builder: PlanBuilder,
    steps: tuple[ProgramStep, ...],
    operands: Sequence[Operand],
    shape: Shape,
    results: tuple[Result, ...],
) -> list[Placed]:
    """A program over operands that broadcast to `shape`, which its results have.

    The memory of large results follows the largest operand's: the sum of two transposed matrices
    is a transposed one, and every pass goes along memory.
    """
    tensors = [operand for operand in operands if isinstance(operand, Placed)]
    order = _memory_order(shape, tensors)
    if order is None:
        return _plan_in_order(builder, steps, operands, shape, results)
    turned = [
        _permuted(operand, shape, order) if isinstance(operand, Placed) else operand
        for operand in operands
    ]
    turned_shape = tuple(shape[axis] for axis in order)
    made = _plan_in_order(builder, steps, turned, turned_shape, results)
    back = []
    for result in made:
        strides = [0] * len(shape)
        for axis, stride in zip(order, result.strides, strict=True):
            strides[axis] = stride
        back.append(result.viewed(shape, tuple(strides), 0))
    return back


FOLLOWS_MEMORY = 1 << 14
"""Elements from which a result's memory order is worth choosing."""


def _memory_order(shape: Shape, tensors: Sequence[Placed]) -> tuple[int, ...] | None:
    """The result's dimensions from the one with the largest step in memory to the one with the
    smallest, if they are not so already, by the first operand that fills the result."""
    if math.prod(shape) < FOLLOWS_MEMORY:
        return None
    for tensor in tensors:
        if tensor.shape == shape and 0 not in tensor.strides:
            steps = [
                (abs(stride) if length > 1 else 0)
                for length, stride in zip(tensor.shape, tensor.strides, strict=True)
            ]
            own = tuple(range(len(steps)))
            long = [axis for axis in own if shape[axis] > 1]
            if all(steps[a] >= steps[b] for a, b in pairwise(long)):
                return None
            return tuple(sorted(own, key=lambda axis: (-steps[axis], axis)))
    return None


def _permuted(tensor: Placed, shape: Shape, order: tuple[int, ...]) -> Placed:
    """A tensor broadcast to `shape`, with its dimensions in another order."""
    strides = broadcast_strides(tensor, shape)
    return tensor.viewed(
        tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order), tensor.offset
    )


def _plan_in_order(
    builder: PlanBuilder,
    steps: tuple[ProgramStep, ...],
    operands: Sequence[Operand],
    shape: Shape,
    results: tuple[Result, ...],
) -> list[Placed]:
    """A program whose results are row-major."""
    types = [TensorType(result.dtype, shape) for result in results]
    if not math.prod(shape):
        return [builder.allocate(type_) for type_ in types]
    operands = [
        plan_transposing(builder, operand)
        if isinstance(operand, Placed) and runs_across(builder, operand)
        else operand
        for operand in operands
    ]
    made = [builder.allocate(type_) for type_ in types]
    tensors = [operand for operand in operands if isinstance(operand, Placed)]
    lengths, strides = collapsed(shape, [broadcast_strides(tensor, shape) for tensor in tensors])
    if not lengths:
        lengths, strides = (1,), [(0,) for _ in tensors]
    views = list(zip(tensors, strides, strict=True))
    quads = _quads_fit(lengths, [result.dtype for result in results], views)
    by_tensor = iter(views)
    loads = tuple(
        Load(operand.dtype, LoadForm.SCALAR)
        if isinstance(operand, ScalarRef)
        else Load(operand.dtype, _form(*next(by_tensor), quads=quads))
        for operand in operands
    )
    scalars = tuple(operand for operand in operands if isinstance(operand, ScalarRef))
    for together in [range(len(results))] if quads else _by_word(results):
        program = Program(loads, steps, tuple(results[number] for number in together))
        targets = [made[number] for number in together]
        _Launches(builder, program, targets, views, scalars, b"", quads).plan(lengths)
    return made


def _by_word(results: Sequence[Result]) -> list[list[int]]:
    """Results that one kernel of the word form can store: those with as many elements a word."""
    groups: dict[int, list[int]] = {}
    for number, result in enumerate(results):
        groups.setdefault(elementwise.per_word(result), []).append(number)
    return list(groups.values())


def _quads_fit(
    shape: Shape, results: Sequence[DType], views: Sequence[tuple[Placed, Strides]]
) -> bool:
    """Whether the quad form may be used.

    A last quad that is not full is read and written whole: memory is padded to 16 bytes, which
    is enough for elements of up to four.
    """
    if shape[-1] % QUAD == 0:
        return True
    return len(shape) == 1 and all(
        dtype.itemsize <= 4 for dtype in (*results, *(tensor.dtype for tensor, _ in views))
    )


def _form(tensor: Placed, strides: Strides, *, quads: bool) -> LoadForm:
    if not quads:
        return LoadForm.STRIDED
    if strides[-1] == 0:
        return LoadForm.UNIFORM
    whole_quads = all(stride % QUAD == 0 for stride in (*strides[:-1], tensor.offset))
    return LoadForm.QUAD if strides[-1] == 1 and whole_quads else LoadForm.STRIDED


class _Launches:
    """The launches of one program: one, or several where a tensor is larger than a binding."""

    def __init__(
        self,
        builder: PlanBuilder,
        program: Program,
        results: Sequence[Placed],
        views: Sequence[tuple[Placed, Strides]],
        scalars: Sequence[ScalarRef],
        constants: bytes,
        quads: bool,
    ) -> None:
        self._builder = builder
        self._program = program
        self._results = results
        self._views = views
        self._scalars = tuple(scalar_words(ref) for ref in scalars)
        self._constants = constants
        self._quads = quads

    def plan(self, shape: Shape) -> None:
        """Add launches that cover `shape`, split along its first dimension where need be."""
        row = math.prod(shape[1:])
        sizes = [result.dtype.itemsize for result in self._results]
        limit = self._builder.facts.max_binding_bytes
        row_bytes = max(
            [row * max(sizes)]
            + [_row_bytes(tensor, strides, shape) for tensor, strides in self._views]
        )
        if row_bytes * shape[0] <= limit:
            self._launch(shape, 0)
            return
        aligned = max(
            BINDING_ALIGNMENT // math.gcd(BINDING_ALIGNMENT, row * itemsize) for itemsize in sizes
        )
        rows = (limit - 2 * BINDING_ALIGNMENT) // row_bytes // aligned * aligned
        if rows < 1:
            raise LaunchError(
                f"{self._program.name}: {aligned} rows of {row_bytes} bytes are more than the "
                f"{limit} that the device binds at once. Work on slices of the array",
                kernel=self._program.name,
            )
        self._builder.require_launches(-(-shape[0] // rows), self._program.name)
        for start in range(0, shape[0], rows):
            self._launch((min(rows, shape[0] - start), *shape[1:]), start)

    def _launch(self, shape: Shape, start: int) -> None:
        builder, program, quads = self._builder, self._program, self._quads
        rank, count = len(shape), math.prod(shape)
        kernel = builder.kernels.kernel(
            (program, rank, quads), lambda: elementwise_kernel(program, rank, quads)
        )
        words = [count, *shape[:-1], shape[-1] // QUAD if quads else shape[-1]]
        buffers = []
        views = iter(self._views)
        for load in program.loads:
            if load.form is LoadForm.SCALAR:
                continue
            tensor, strides = next(views)
            offset = tensor.offset + start * strides[0]
            window = builder.window(tensor, shape, strides, offset, program.name)
            buffers.append(window.buffer)
            match load.form:
                case LoadForm.QUAD:
                    words += [window.offset // QUAD, *(stride // QUAD for stride in strides[:-1])]
                case LoadForm.UNIFORM:
                    words += [window.offset, *strides[:-1]]
                case LoadForm.STRIDED:
                    words += [window.offset, *strides]
        for result in self._results:
            itemsize = result.dtype.itemsize
            first = start * math.prod(shape[1:]) * itemsize
            buffers.append(BufferRange(result.slot, first, -(-count * itemsize // 16) * 16))
        groups = elementwise.workgroups(count, program.results, quads)
        builder.launch(kernel, groups, buffers, words, self._scalars, self._constants)


def _row_bytes(tensor: Placed, strides: Strides, shape: Shape) -> int:
    """Bytes that one step along the first dimension takes at most."""
    inner = sum(
        abs(stride) * (length - 1) for stride, length in zip(strides[1:], shape[1:], strict=True)
    )
    return max(abs(strides[0]), inner + 1) * tensor.dtype.itemsize
