"""Forked children: our threads stay behind, our locks and file descriptors come along."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def call_in_forked_child(method: Callable[[], None]) -> None:
    """Has a bound method called in every child that forks from now on, while its object lives. Does
    nothing where there is no fork."""
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.WeakMethod(method)

    def after_fork() -> None:
        living = reference()
        if living is not None:
            living()

    os.register_at_fork(after_in_child=after_fork)
