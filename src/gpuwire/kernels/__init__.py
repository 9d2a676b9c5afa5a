"""WGSL kernels: generators, and the functions of `wgsl/` that generated kernels call."""
