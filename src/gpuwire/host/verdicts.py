"""Whose work it was that ran past the time limit."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.compute.submissions import Submission
from gpuwire.errors import WatchdogExpired
from gpuwire.host.session import HostSession


def verdict(
    stuck: Submission, seconds: float, sessions: Sequence[HostSession]
) -> tuple[tuple[int, ...], WatchdogExpired]:
    """The sessions whose work a submission holds, and what they are told. From any thread.

    A submission may hold the work of several sessions. Kernels that a session brought along are
    likelier to run for ever than ours, so where there are some, those of ours are not suspected.
    """
    launches = tuple(zip(stuck.kernels, stuck.streams, strict=True))
    own = tuple(
        (kernel, stream)
        for kernel, stream in launches
        if any(one.owns_stream(stream) and one.face.kernels.has_name(kernel) for one in sessions)
    )
    suspects = own or launches
    blamed = [
        one.number for one in sessions if any(one.owns_stream(stream) for _, stream in suspects)
    ]
    return tuple(blamed), _expired([kernel for kernel, _ in suspects], seconds)


def _expired(kernels: Sequence[str], seconds: float) -> WatchdogExpired:
    names = " or ".join(map(repr, kernels)) or "of copies"
    return WatchdogExpired(
        f"work of kernel {names} took more than {seconds:g} s ([compute] watchdog_seconds of the "
        "server) and was ended, together with the process that owns the device; every array of "
        "this session is lost, connect again",
        kernel=kernels[0] if kernels else None,
        seconds=seconds,
    )
