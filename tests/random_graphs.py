"""Random op-graphs, and how far two ways of running one may differ.

`random_graph(choose)` draws everything from `choose(n)`, a number below n: from Hypothesis, which
can then shrink a failure, or from a seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpuwire.errors import GpuwireError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    ArgReduceAttributes,
    Attributes,
    AxisAttributes,
    CastAttributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef, ValueRef
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, Shape, TensorType
from gpuwire.lowering.host_reference import Array, evaluate

Choose = Callable[[int], int]

_DTYPES = (
    *(dt.float32,) * 8,
    *(dt.float16, dt.float64, dt.int32, dt.int32, dt.int8, dt.uint8, dt.int64, dt.bool_),
    dt.complex64,
)
_LENGTHS = (1, 1, 2, 3, 4, 4, 5, 8, 12, 36)
_UNARY = (
    "negative",
    "abs",
    "square",
    "exp",
    "sqrt",
    "floor",
    "sign",
    "isnan",
    "tanh",
    "logical_not",
)
_BINARY = (
    *("add", "subtract", "multiply", "add", "subtract", "multiply", "maximum", "minimum"),
    *("divide", "less", "equal", "logical_and", "pow", "bitwise_xor"),
)
_REDUCTIONS = ("sum", "max", "min", "mean", "prod", "any", "sum", "max")
_DISCRETE = frozenset(
    {
        *("less", "equal", "floor", "sign", "isnan", "logical_not", "logical_and", "any", "argmax"),
        *("argmin", "all", "isinf"),
    }
)


@dataclass(slots=True)
class RandomGraph:
    """A graph and everything to run it with."""

    graph: OpGraph
    inputs: list[Array]
    scalars: list[Scalar]
    views: list[Array] = field(default_factory=list)
    """The inputs as they lie in memory: some of them turned or stepped through."""


def seeded(seed: int) -> Choose:
    """Choices from a seed."""
    random = np.random.default_rng(seed)
    return lambda n: int(random.integers(n))


def random_graph(choose: Choose, *, nodes: int = 10) -> RandomGraph:
    """A graph of up to so many nodes, over up to three inputs."""
    return _Maker(choose).make(1 + choose(nodes))


class _Maker:
    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._nodes: list[Node] = []
        self._scalars: list[Scalar] = []
        self._types: list[TensorType] = []
        self._arrays: list[Array] = []

    def make(self, nodes: int) -> RandomGraph:
        lengths = [self._pick(_LENGTHS) for _ in range(1 + self._choose(3))]
        if not self._choose(12):
            lengths[0] = 0
        for _ in range(1 + self._choose(3)):
            self._add_input(tuple(lengths))
        for _ in range(nodes):
            self._add_node()
        used = {r.index for n in self._nodes for r in n.operands if isinstance(r, NodeRef)}
        outputs = [number for number in range(len(self._nodes)) if number not in used]
        outputs += [number for number in used if not self._choose(6)]
        graph = OpGraph(
            tuple(self._types), tuple(self._nodes), tuple(NodeRef(o) for o in sorted(set(outputs)))
        )
        return RandomGraph(graph, self._arrays, self._scalars)

    def _pick(self, options: tuple[object, ...]) -> object:  # type: ignore[misc]
        return options[self._choose(len(options))]

    def _add_input(self, lengths: Shape) -> None:
        shape = tuple(1 if not self._choose(5) else length for length in lengths)
        shape = shape[self._choose(len(shape)) if not self._choose(4) else 0 :]
        dtype = self._pick(_DTYPES)
        assert isinstance(dtype, DType)
        array = _numbers(self._choose, shape, dtype)
        if len(shape) > 1 and not self._choose(4):
            array = np.ascontiguousarray(array.T).T
        elif shape and not self._choose(6):
            array = np.repeat(array, 2, axis=-1)[..., ::2]
        self._types.append(TensorType(dtype, shape))
        self._arrays.append(array)

    def _ref(self) -> ValueRef:
        choices = len(self._types) + 2 * len(self._nodes)
        number = self._choose(choices)
        if number < len(self._types):
            return InputRef(number)
        return NodeRef((number - len(self._types)) // 2)

    def _type(self, ref: ValueRef) -> TensorType:
        match ref:
            case NodeRef(index):
                return self._nodes[index].type
            case InputRef(index):
                return self._types[index]
            case ScalarRef(_, dtype):
                return TensorType(dtype, ())

    def _scalar(self, dtype: DType) -> ScalarRef:
        if dtype.kind is Kind.COMPLEX:
            dtype = dt.float32
        value = {Kind.BOOL: True, Kind.FLOAT: 0.75}.get(dtype.kind, 3)
        self._scalars.append(Scalar(value, dtype))
        return ScalarRef(len(self._scalars) - 1, dtype)

    def _add_node(self) -> None:
        for _ in range(8):
            name, operands, attributes = self._operation()
            definition = OPERATIONS[name]
            types = tuple(self._type(ref) for ref in operands)
            try:
                result = definition.result_type(types, attributes)
            except GpuwireError:
                continue
            if result.size <= 4096 and len(result.shape) <= 4:
                self._nodes.append(Node(definition, operands, attributes, result))
                return

    def _operation(self) -> tuple[str, tuple[ValueRef, ...], Attributes]:
        ref = self._ref()
        type_ = self._type(ref)
        shape = type_.shape
        match self._choose(12):
            case 0 | 1:
                return str(self._pick(_UNARY)), (ref,), NO_ATTRIBUTES
            case 2 | 3 | 4:
                other = self._ref() if self._choose(4) else self._scalar(type_.dtype)
                pair = (ref, other) if self._choose(2) else (other, ref)
                return str(self._pick(_BINARY)), pair, NO_ATTRIBUTES
            case 5:
                return "where", (self._ref(), ref, self._ref()), NO_ATTRIBUTES
            case 6:
                return "cast", (ref,), CastAttributes(self._pick(_DTYPES))  # type: ignore[arg-type]
            case 7 | 8:
                return self._reduction(ref, type_)
            case 9:
                turned = self._ref()
                if len(self._type(turned).shape) == 2 and self._choose(2):
                    return "permute_dims", (turned,), PermuteAttributes((1, 0))
                return "matmul", (ref, turned), NO_ATTRIBUTES
            case 10:
                return self._view(ref, shape)
        return self._other(ref, shape)

    def _reduction(
        self, ref: ValueRef, type_: TensorType
    ) -> tuple[str, tuple[ValueRef, ...], Attributes]:
        rank = len(type_.shape)
        if rank and not self._choose(6):
            return "argmax", (ref,), ArgReduceAttributes(self._choose(rank), False, dt.int32)
        axes = tuple(axis for axis in range(rank) if self._choose(2)) or (
            (rank - 1,) if rank else ()
        )
        name = str(self._pick(_REDUCTIONS))
        dtype = type_.dtype
        if name == "any":
            dtype = dt.bool_
        elif name == "mean" and not dtype.is_floating:
            dtype = dt.float32
        elif name in ("sum", "prod") and dtype is dt.bool_:
            dtype = dt.int32
        return name, (ref,), ReduceAttributes(axes, bool(self._choose(3)), dtype)

    def _view(self, ref: ValueRef, shape: Shape) -> tuple[str, tuple[ValueRef, ...], Attributes]:
        match self._choose(4):
            case 0:
                axes = list(range(len(shape)))
                axes.sort(key=lambda _: self._choose(7))
                return "permute_dims", (ref,), PermuteAttributes(tuple(axes))
            case 1:
                if self._choose(2):
                    return "reshape", (ref,), ShapeAttributes((*shape, 1))
                return "reshape", (ref,), ShapeAttributes((int(np.prod(shape)),))
            case 2:
                wider = tuple(4 if length == 1 else length for length in shape)
                return "broadcast_to", (ref,), ShapeAttributes((self._choose(2) + 1, *wider))
        return "slice", (ref,), self._slice(shape)

    def _slice(self, shape: Shape) -> SliceAttributes:
        starts, steps, lengths = [], [], []
        for length in shape:
            form = self._choose(4)
            if form == 1 and length > 1:
                parts = (1, 1, length - 1)
            elif form == 2 and length:
                parts = (length - 1, -1, length)
            elif form == 3:
                parts = (0, 2, (length + 1) // 2)
            else:
                parts = (0, 1, length)
            starts.append(parts[0])
            steps.append(parts[1])
            lengths.append(parts[2])
        return SliceAttributes(tuple(starts), tuple(steps), tuple(lengths))

    def _other(self, ref: ValueRef, shape: Shape) -> tuple[str, tuple[ValueRef, ...], Attributes]:
        match self._choose(3):
            case 0:
                value = self._scalar(self._type(ref).dtype)
                return "full", (value,), ShapeAttributes(shape)
            case 1:
                return "concat", (ref, self._ref()), AxisAttributes(0)
        return "slice_assign", (ref, self._ref()), self._slice(shape)


def _numbers(choose: Choose, shape: Shape, dtype: DType) -> Array:
    random = np.random.default_rng(choose(1000))
    if dtype.kind is Kind.BOOL:
        return np.asarray(random.integers(0, 2, shape).astype(bool))
    if dtype.is_integer:
        low = 0 if dtype.kind is Kind.UNSIGNED else -5
        return np.asarray(random.integers(low, 6, shape).astype(dtype.numpy))
    values = random.uniform(-2, 2, shape)
    if dtype.kind is Kind.COMPLEX:
        values = values + 1j * random.uniform(-2, 2, shape)
    return np.asarray(values).astype(dtype.numpy)


def on_numpy(case: RandomGraph) -> list[Array]:
    """Every node's result in NumPy."""
    made: list[Array] = []
    for node in case.graph.nodes:
        arrays = []
        for ref in node.operands:
            match ref:
                case InputRef(index):
                    arrays.append(case.inputs[index])
                case NodeRef(index):
                    arrays.append(made[index])
                case ScalarRef(index, dtype):
                    arrays.append(np.asarray(case.scalars[index].value).astype(dtype.numpy))
        made.append(evaluate(node.definition, arrays, node.attributes, node.type))
    return made


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a node's result is determined: to the bit, nearly, or not at all (a comparison of
    numbers that are known nearly)."""

    exact: bool
    known: bool


def trusts(graph: OpGraph, *, kernels: bool) -> list[Trust]:
    """Of each node. `kernels`: between two runs of the same kernels' arithmetic, where only the
    order in which floats are summed may differ; else between a device and NumPy."""
    found: list[Trust] = []
    for node in graph.nodes:
        operands = [found[r.index] for r in node.operands if isinstance(r, NodeRef)]
        exact = all(trust.exact for trust in operands)
        known = all(trust.known for trust in operands)
        if not exact and (
            node.definition.name in _DISCRETE
            or (node.definition.name == "cast" and not node.type.dtype.is_floating)
            or (node.definition.name == "where" and not _selector(node, found).exact)
        ):
            known = False
        if node.type.dtype.is_floating and (
            not kernels or (node.definition.name in ("sum", "mean", "prod", "matmul"))
        ):
            exact = False
        found.append(Trust(exact, known))
    return found


def _selector(node: Node, found: list[Trust]) -> Trust:
    ref = node.operands[0]
    return found[ref.index] if isinstance(ref, NodeRef) else Trust(True, True)


def assert_agree(got: Array, wanted: Array, trust: Trust, *, scale: float, what: str) -> None:
    """Two results, as far as they are determined. `scale`: the largest number on the way."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, what
    if not trust.known:
        return
    if trust.exact or not np.issubdtype(got.dtype, np.inexact):
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    narrow = got.dtype == np.float16
    tolerance = 2e-2 if narrow else 2e-4
    bound = tolerance * max(1.0, scale)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=bound, err_msg=what)


def largest(arrays: list[npt.NDArray[np.generic]]) -> float:
    """The largest finite magnitude in any of the arrays."""
    most = 0.0
    for array in arrays:
        if array.size and np.issubdtype(array.dtype, np.inexact):
            wide = np.abs(array.astype(np.complex128))
            finite = wide[np.isfinite(wide)]
            most = max(most, float(finite.max(initial=0.0)))
    return most
