"""A tensor of a session: its id and type here, its bytes on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpuwire.ids import TensorId
from gpuwire.ir.tensors import TensorType

if TYPE_CHECKING:
    from gpuwire.client.host_copies import HostCopy


class TensorOwner(Protocol):
    """What a tensor tells when nothing refers to it any more."""

    def drop(self, tensor: TensorId) -> None:
        """Takes the id down to be dropped. Called by the garbage collector: on any thread, in the
        middle of anything, also while the interpreter ends. It takes no lock and does not raise."""


class Tensor:
    """One tensor. It lives on the device for as long as this object lives here.

    `session` is whose tensor it is, compared by identity: two tensors with different ones cannot
    meet in one operation.
    """

    __slots__ = ("__weakref__", "host_copy", "id", "session", "type")

    def __init__(self, id: TensorId, type: TensorType, session: TensorOwner) -> None:
        self.id = id
        self.type = type
        self.session = session
        self.host_copy: HostCopy | None = None
        """Its values here, if they were asked for ahead."""

    def __del__(self) -> None:
        self.session.drop(self.id)

    def __repr__(self) -> str:
        return f"<tensor {self.id}: {self.type}>"
