"""Uploads on bulk streams: chunks go into device memory as they come, the tensor is never whole in
this process's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwire.errors import GpuwireError, MalformedMessage, SessionError, UploadTooLarge
from gpuwire.host.channel_messages import ToFront, UploadRefused, UploadWanted
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device, byte_range
from gpuwire.host.tensors import Lease, Tensor
from gpuwire.host.work import Stream
from gpuwire.ids import RequestId
from gpuwire.lowering import Value
from gpuwire.wire.messages import RegisterTensor


@dataclass(slots=True, eq=False)
class _Upload:
    """One upload under way."""

    tensor: Tensor
    stream: Stream
    value: Value
    lease: Lease
    length: int
    received: int = 0


class Uploads:
    """The tensors of one session that the client sends."""

    def __init__(
        self,
        session: int,
        device: Device,
        dataflow: Dataflow,
        max_upload_bytes: int,
        send: Callable[[ToFront], None],
    ) -> None:
        self._session = session
        self._device = device
        self._dataflow = dataflow
        self._max_upload_bytes = max_upload_bytes
        self._send = send
        self._under_way: dict[RequestId, _Upload] = {}

    def register(self, task: RegisterTensor) -> None:
        """Makes the tensor of bytes that came inline, or asks the front for those that follow.

        What is above a limit is refused before anything is allocated. `MalformedMessage` for a
        request that is an upload already.
        """
        stream = self._dataflow.stream(task.stream)
        size = task.type.nbytes
        if task.data is None and task.request in self._under_way:
            raise MalformedMessage(f"request {task.request} is an upload already", what="request")
        tensor = self._dataflow.begin(task.tensor, task.type, stream)
        try:
            value, lease = self._allocate(task, size, stream)
            if task.data is not None and size:
                self._device.server.write([(byte_range(value, 0, size), task.data)], stream.number)
        except GpuwireError as error:
            if task.data is None:
                self._send(UploadRefused(self._session, task.request))
            self._dataflow.fail(tensor, stream, error)
            return
        if task.data is None:
            self._send(UploadWanted(self._session, task.request, size))
        if task.data is not None or not size:
            self._dataflow.settle(tensor, stream, value, lease)
        else:
            upload = _Upload(tensor, stream, value, lease, size)
            self._under_way[task.request] = upload

    def _allocate(self, task: RegisterTensor, size: int, stream: Stream) -> tuple[Value, Lease]:
        limit = self._max_upload_bytes
        if limit and size > limit:
            raise UploadTooLarge(
                f"an upload of {size} bytes; this server takes at most {limit} in one; send it "
                "in parts and concat them",
                size=size,
                limit=limit,
            )
        self._dataflow.account.require(size)
        with self._device.allocating(stream):
            value = self._device.lowering.allocate(task.type, stream.number)
        return value, Lease(self._dataflow.account, size)

    def has_room(self, request: RequestId, size: int) -> bool:
        """Whether a chunk would be taken without waiting for the device."""
        upload = self._under_way.get(request)
        return upload is None or self._device.server.can_write(size, upload.stream.number)

    def chunk(self, request: RequestId, offset: int, data: memoryview) -> None:
        """Bytes of an upload, in order. `data` may be reused at return."""
        upload = self._under_way.get(request)
        if upload is None:
            return
        target = byte_range(upload.value, offset, len(data))
        try:
            self._device.server.write([(target, data)], upload.stream.number)
        except GpuwireError as error:
            del self._under_way[request]
            self._send(UploadRefused(self._session, request))
            self._dataflow.fail(upload.tensor, upload.stream, error)
            return
        upload.received = offset + len(data)
        if upload.received == upload.length:
            del self._under_way[request]
            self._dataflow.settle(upload.tensor, upload.stream, upload.value, upload.lease)

    def broken(self, request: RequestId) -> None:
        """The client gave up the upload."""
        upload = self._under_way.pop(request, None)
        if upload is not None:
            error = SessionError(
                f"the upload ended after {upload.received} of {upload.length} bytes"
            )
            self._dataflow.fail(upload.tensor, upload.stream, error)

    def close(self) -> None:
        self._under_way.clear()
