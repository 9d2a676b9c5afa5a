"""From an op-graph of many nodes to few kernels.

The passes, in order; each is pure, and is tested by itself:

1. `rewriting`: operations that change nothing, repeat another or serve nothing go.
2. `grouping`: nodes are assigned to kernels. An elementwise operation goes into the kernels of
   those that read it, unless they are several and computing it again costs more than storing it.
3. `merging`: kernels that work on the same elements become one: what follows a product or a
   reduction, results of one shape that share operands, all that is done to the rows of a matrix.
4. `planning`: groups become launches, in order. It knows where operands lie; `tracing` turns a
   group's nodes into a kernel's program, its views into strides.
5. `memory` (after all launches are known): intermediates share memory by lifetime.
"""
