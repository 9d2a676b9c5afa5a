"""The devices of both faces, with a span around each of their waits."""

from __future__ import annotations

import asyncio

from gpuwire.client.aio import AsyncDevice
from gpuwire.client.device import Device
from gpuwire.client.pending import HostArray
from gpuwire.client.tensor import Tensor
from gpuwire.client.tracing import Tracing
from gpuwire.ir.dtypes import dtype_of_numpy
from gpuwire.ir.tensors import TensorType


class TracedDevice(Device):
    """`Device` where `remote.tracing` is on."""

    def upload(self, array: HostArray) -> Tensor:
        with self._tracing.waiting("upload", _type_of(array)):
            return super().upload(array)

    def read(self, tensor: Tensor) -> HostArray:
        with self._tracing.waiting("read", tensor.type):
            return super().read(tensor)

    def sync(self) -> None:
        with self._tracing.waiting("sync"):
            super().sync()

    def close(self) -> None:
        super().close()
        self._tracing.close()

    @property
    def _tracing(self) -> Tracing:
        assert self._session.tracing is not None
        return self._session.tracing


class TracedAsyncDevice(AsyncDevice):
    """`AsyncDevice` where `remote.tracing` is on."""

    def upload(self, array: HostArray) -> Tensor:
        with self._tracing.waiting("upload", _type_of(array)):
            return super().upload(array)

    async def upload_in_place(self, array: HostArray) -> Tensor:
        with self._tracing.waiting("upload", _type_of(array)):
            return await super().upload_in_place(array)

    async def read(self, tensor: Tensor) -> HostArray:
        with self._tracing.waiting("read", tensor.type):
            return await super().read(tensor)

    async def sync(self) -> None:
        with self._tracing.waiting("sync"):
            await super().sync()

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._tracing.close)

    @property
    def _tracing(self) -> Tracing:
        assert self._session.tracing is not None
        return self._session.tracing


def _type_of(array: HostArray) -> TensorType:
    return TensorType(dtype_of_numpy(array.dtype), array.shape)
