"""Kernels that were generated before are found again, as long as they are used."""

from __future__ import annotations

from gpuwire.kernels.kernel import Kernel
from gpuwire.lowering.builder import KernelCache


def test_the_kernel_that_was_not_asked_for_for_longest_goes_first():
    cache = KernelCache(max_kernels=2)
    made = []

    def kernel(key):
        def generate():
            made.append(key)
            return Kernel(key, "", (), (1, 1, 1))

        return cache.kernel(key, generate)

    a = kernel("a")
    kernel("b")
    assert kernel("a") is a
    kernel("c")
    assert len(cache) == 2
    assert kernel("a") is a
    kernel("b")
    assert made == ["a", "b", "c", "b"]
