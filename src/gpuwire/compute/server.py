"""WgpuServer: the compute server's front, one for each device.

Driven from one thread. Every method states what it does; the work is in the files beside this one.
Memory, communication, profiling and captured graphs have faces of their own (`faces`), which this
class inherits.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.compute.adapters import open_adapter
from gpuwire.compute.capture import Captures
from gpuwire.compute.collectives import Collectives
from gpuwire.compute.completion import Completion
from gpuwire.compute.exchange import CommunicationOptions
from gpuwire.compute.faces.communication import CommunicationFace
from gpuwire.compute.faces.graphs import GraphFace
from gpuwire.compute.faces.memory import MemoryFace
from gpuwire.compute.faces.profiling import ProfilingFace
from gpuwire.compute.handles import Binding, CopyDescriptor, Handle
from gpuwire.compute.indirect import IndirectCounts
from gpuwire.compute.launch_scope import Claim, LaunchScope
from gpuwire.compute.launcher import Launcher
from gpuwire.compute.launches import LaunchArguments, LaunchMode, LaunchObserver, WorkgroupCount
from gpuwire.compute.memory.manager import MemoryManager
from gpuwire.compute.native import NativeDevice, NativeError
from gpuwire.compute.polling import Poller
from gpuwire.compute.programs import Programs
from gpuwire.compute.properties import (
    Backend,
    CompilationOptions,
    MemoryProperties,
    ServerUtilities,
    Stage,
    TimingMethod,
)
from gpuwire.compute.readbacks import Readbacks
from gpuwire.compute.resources import Resource
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.sequence_launcher import SequenceLauncher
from gpuwire.compute.sequences import LaunchSequence
from gpuwire.compute.storage import STORAGE_USAGE, Storage, host_memory
from gpuwire.compute.streams import Stream
from gpuwire.compute.submissions import Submission, Submissions
from gpuwire.compute.taint import detached
from gpuwire.compute.timings import Timings
from gpuwire.compute.transfers import Transfers, WriteData
from gpuwire.compute.uniforms import Uniforms
from gpuwire.compute.uploads import Uploads
from gpuwire.config import CudaMemoryConfig, MemoryConfig, StreamingConfig
from gpuwire.errors import (
    DeviceLost,
    ExecutionError,
    GpuwireError,
)
from gpuwire.kernels.kernel import Kernel
from gpuwire.telemetry.logs import Logger, open_logger

DEFAULT_TASKS_MAX = 64


class WgpuServer(MemoryFace, CommunicationFace, ProfilingFace, GraphFace):
    """One wgpu device with its kernels, buffers and streams."""

    def __init__(
        self,
        memory_properties: MemoryProperties,
        memory_config: MemoryConfig,
        compilation_options: CompilationOptions,
        device: NativeDevice,
        tasks_max: int,
        backend: Backend,
        timing_method: TimingMethod,
        utilities: ServerUtilities,
        captures: Captures | None = None,
        *,
        max_streams: int = StreamingConfig().max_streams,
        communication: CommunicationOptions | None = None,
    ) -> None:
        self.backend = backend
        self.timing_method = timing_method
        self._memory_properties = memory_properties
        self._memory_config = memory_config
        self._utilities = utilities
        self._device = device
        self._claims: list[Claim] = []
        self._closed = False
        self._launch_observer: LaunchObserver | None = None
        self._captures = captures or Captures()
        properties = utilities.properties
        self._storage = Storage(
            device, memory_properties.max_buffer, memory_properties.limit, utilities.logger
        )
        self._storage.on_pressure(self._give_back_everything)
        self._storage.count_in_use(self._bytes_in_use)
        self._poller = Poller(device)
        self._submissions = Submissions(self._poller)
        self._programs = Programs(
            device,
            features=properties.features,
            max_immediate_bytes=properties.max_immediate_bytes,
            max_buffers=properties.max_buffers,
            checked=compilation_options.checked,
        )
        self._uploads = Uploads(self._storage, self._poller)
        self._readbacks = Readbacks(self._storage, self._poller)
        self._uniforms = Uniforms(device, self._storage)
        self._indirect = IndirectCounts(self._storage)
        self._scheduler = Scheduler(
            device,
            max_streams,
            tasks_max,
            self._prepare_stream,
            self._uploads.seal,
            self._on_submitted,
            self._on_failed_batch,
        )
        self._scope = LaunchScope(self)
        self._timings = Timings(
            device,
            self._storage,
            self._poller,
            self._readbacks,
            by_device=timing_method is TimingMethod.DEVICE,
        )
        self._launcher = Launcher(
            properties,
            self._storage,
            self._programs,
            self._uniforms,
            self._scheduler,
            self._scope,
            self._indirect,
            self._captures,
            self._timings,
        )
        self._sequences = SequenceLauncher(
            self._launcher,
            self._programs,
            self._uniforms,
            self._scheduler,
            self._scope,
            self._captures,
            self._timings,
        )
        self._communication = communication or CommunicationOptions()
        self._transfers = Transfers(
            self._storage,
            memory_properties.alignment,
            self._scheduler,
            self._scope,
            self._launcher,
            self._uploads,
            self._readbacks,
        )
        own = self._communication.device_id
        self._collectives = Collectives(
            self._transfers,
            self._scope,
            properties.index if own is None else own,
            self._communication,
        )

    @classmethod
    def init(
        cls,
        device_id: int = 0,
        *,
        memory: MemoryConfig | None = None,
        streaming: StreamingConfig | None = None,
        compilation: CompilationOptions | None = None,
        tasks_max: int = DEFAULT_TASKS_MAX,
        communication: CommunicationOptions | None = None,
    ) -> WgpuServer:
        """The server of the adapter with that index in `adapters.adapters()`.

        Open one at a time: two threads that open devices at once make NVIDIA's driver or
        wgpu-native end the process. Raises NoAdapter, NoSuchDevice.
        """
        opened = open_adapter(device_id)
        properties = opened.properties
        memory = memory or MemoryConfig()
        memory_properties = MemoryProperties(
            alignment=max(32, properties.storage_alignment),
            max_buffer=properties.max_buffer_bytes,
            limit=host_memory() if properties.kind == "cpu" else None,
        )
        logger = open_logger(memory.logger, "compute")
        if memory.cuda != CudaMemoryConfig():
            logger.full(f"memory.cuda.allocator {memory.cuda.allocator!r} is ignored: wgpu has one")
        utilities = ServerUtilities(properties, memory_properties, logger)
        has_timestamps = "timestamp-query-inside-encoders" in properties.features
        return cls(
            memory_properties,
            memory,
            compilation or CompilationOptions(),
            opened.device,
            tasks_max,
            Backend(properties.backend),
            TimingMethod.DEVICE if has_timestamps else TimingMethod.SYSTEM,
            utilities,
            max_streams=(streaming or StreamingConfig()).max_streams,
            communication=communication,
        )

    # --- What it is ---------------------------------------------------------------------------

    def utilities(self) -> ServerUtilities:
        """Properties, logger and layout policy, shared with those who use the server."""
        return self._utilities

    def stage(self) -> Stage:
        """Which stage of the way to the device this is."""
        return Stage.COMPUTE

    def logger(self) -> Logger:
        """The server's logger."""
        return self._utilities.logger

    # --- Work ---------------------------------------------------------------------------------

    def can_write(self, size: int, stream_id: int = 0) -> bool:
        """Whether a `write` of so many bytes, at most 16 MiB, would go without waiting for the
        device. If not, all that is encoded is submitted, so that it comes to be so."""
        if self._uploads.has_room(size, self._scheduler.stream(stream_id)):
            return True
        for stream in self._scheduler:
            stream.submit()
        return False

    def write(self, writes: Sequence[tuple[CopyDescriptor, WriteData]], stream_id: int = 0) -> None:
        """Queue bytes into device memory, in order with the stream's launches; the data may be
        changed or freed at return.

        Raises ArgumentError for a size that does not fit, UnsupportedStrides, InvalidHandle.
        """
        stream = self._scheduler.stream(stream_id)
        self._captures.refuse(stream_id, "write")
        for descriptor, data in writes:
            self._transfers.write(descriptor, data, stream)

    def read(
        self, reads: Sequence[CopyDescriptor], stream_id: int = 0
    ) -> Completion[list[memoryview]]:
        """The bytes of device memory as of now; await it, or `.wait()` for it. Read-only views.

        A tainted buffer's first cause is raised by the awaitable. A view of more than 64 KiB lies
        in a mapped buffer, which is in use while the view lives.
        """
        self._captures.refuse(stream_id, "read")
        return self._transfers.read(reads, self._scheduler.stream(stream_id))

    def check(self, bindings: Sequence[Binding], stream_id: int = 0) -> None:
        """Raise what a `read` of these would raise for reasons known now; waits for nothing."""
        del stream_id  # taint belongs to memory, not to streams
        error = self._transfers.first_error(
            [self._transfers.range_of_binding(binding) for binding in bindings]
        )
        if error is not None:
            raise error

    def launch(
        self,
        kernel: Kernel,
        count: WorkgroupCount,
        args: LaunchArguments,
        stream_id: int = 0,
        mode: LaunchMode = LaunchMode.NORMAL,
    ) -> None:
        """Queue one dispatch. A kernel that does not compile, or an input that is tainted, taints
        the outputs (every READ_WRITE buffer) and raises nothing here: reads, `check`, `sync` of
        them and `flush` do. Raises LaunchError or InvalidHandle for arguments that cannot be.

        Mode skip compiles and runs nothing; queue compiles nothing either before `compile_queued`.
        """
        observer = self._launch_observer
        if observer is not None and mode is LaunchMode.NORMAL:
            observer.before(kernel, stream_id)
        else:
            observer = None
        try:
            self._launcher.launch(kernel, count, args, stream_id, mode)
        except GpuwireError as error:
            self._captures.doom(stream_id, error)
            raise
        finally:
            if observer is not None:
                observer.after(kernel, stream_id)

    def launch_sequence(
        self,
        sequence: LaunchSequence,
        handles: list[Handle | None],
        brought: Sequence[bytes] = (),
        stream_id: int = 0,
    ) -> bool:
        """Queue launches that belong together, at a fraction of what they cost one by one.

        `handles` are the slots' memory: that of the given ones is read, that of the made ones is
        allocated here and put in. `brought`: the run's own parameters, for each launch that takes
        any. False where the launches must be looked at one by one: nothing is queued then, and the
        caller launches them. So it is when some memory that is given does not exist whole, while
        launches are captured or observed, and where a kernel does not compile. Raises OutOfMemory
        with nothing queued.
        """
        if self._launch_observer is not None:
            return False
        return self._sequences.run(sequence, handles, brought, stream_id)

    def observe_launches(self, observer: LaunchObserver | None) -> None:
        """Tells `observer` of every launch in normal mode from now on; None ends that. It may
        open and end profiling windows."""
        self._launch_observer = observer

    def is_compiled(self, kernel: Kernel) -> bool:
        """Whether a launch of the kernel would find it compiled, or known not to compile."""
        return self._programs.knows(kernel)

    def forget_kernel(self, kernel: Kernel) -> None:
        """Let go of what is compiled of a kernel; launched again, it is compiled again. What is
        queued or captured goes on. Without this the last few thousand kernels are kept."""
        self._programs.drop(kernel)

    def launch_counts(self) -> dict[str, int]:
        """Launches so far by kernel name, replays not counted."""
        self._sequences.count_launches()
        return self._programs.launch_counts()

    def compile_queued(self) -> None:
        """Compile the kernels of all launches in queue mode."""
        self._launcher.compile_queued()

    def flush(self, stream_id: int = 0) -> None:
        """Submit what is encoded; raises the first failure at enqueue since the last flush."""
        stream = self._scheduler.stream(stream_id)
        stream.submit()
        failures, stream.failures = stream.failures, []
        if failures:
            raise failures[0]

    def sync(self, handles: Sequence[Handle] = (), stream_id: int = 0) -> Completion[None]:
        """Ends when the stream's work so far has ended on the device; raises if one of `handles`
        is tainted. Await it, or `.wait()` for it."""
        self._captures.refuse(stream_id, "sync")
        stream = self._scheduler.stream(stream_id)
        stream.submit()
        ranges = [
            self._transfers.range_of_binding(Binding(handle, 0, handle.slice.size))
            for handle in handles
            if handle.slice is not None
        ]
        completion: Completion[None] = self._poller.completion()
        tainted = self.lost() or stream.take_late_error() or self._transfers.first_error(ranges)

        def ended(error: GpuwireError | None) -> None:
            if tainted is not None or error is not None:
                completion.fail(tainted or error)  # type: ignore[arg-type]
            else:
                completion.succeed(None)

        self._poller.when_work_done(ended)
        return completion

    def get_resource(self, binding: Binding, stream_id: int = 0) -> Resource:
        """The wgpu buffer, offset and size behind a binding. The stream's queued work has been
        submitted, so what the caller submits comes after it. Raises InvalidHandle, ArgumentError,
        and the first cause if the bytes are tainted."""
        self._captures.refuse(stream_id, "get_resource")
        self.check([binding], stream_id)
        used, start, _ = self._transfers.range_of_binding(binding)
        toucher = used.touched_by
        if toucher is not None and toucher.batch == used.touched_batch:
            toucher.submit()
        self._scheduler.stream(stream_id).submit()
        return Resource(used, start, binding.size)

    # --- Its life -----------------------------------------------------------------------------

    def stream_ids(self) -> tuple[int, ...]:
        """The logical streams that are alive."""
        return self._scheduler.stream_ids()

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was submitted is still under way. Asks the device, which takes
        1 µs."""
        self._poller.poll()
        return self._submissions.is_empty

    def running(self) -> Submission | None:
        """The submission that has been under way longest; None if the device is idle. The one
        method that any thread may call, while the server's own is stuck in a driver, say."""
        return self._submissions.oldest()

    def lost(self) -> DeviceLost | None:
        """Why the device is gone, if it is. Everything on it is lost then: reads and syncs raise
        DeviceLost, and a new server must be made. From any thread."""
        lost = self._device.lost
        if lost is None:
            return None
        return DeviceLost(f"the GPU device was lost: {lost.message}", reason=lost.message)

    def close(self) -> None:
        """Wait for the work on its way, drop what is not submitted, and let go of the device. Views
        that were read stay valid; any later call raises DeviceLost."""
        if self._closed:
            return
        self._closed = True
        self._collectives.close()
        if self._device.lost is None:
            # The library keeps pointers to our callbacks until the work they wait for has ended.
            self._poller.wait_for_work()
        self._captures.clear()
        self._sequences.clear()
        self._scheduler.close()
        self._readbacks.pool.closed = self._uploads.pool.closed = True
        self._poller.close()
        self._uploads.close()
        self._readbacks.pool.close()
        self._storage.close()

    def __del__(self) -> None:
        if hasattr(self, "_collectives"):
            self.close()

    # --- What the launch scope borrows --------------------------------------------------------

    def write_set(self) -> list[Claim]:
        """The claims of work that is under way, or was interrupted."""
        return self._claims

    def write_streams(self) -> tuple[int, ...]:
        """The real streams that have claims."""
        return tuple(sorted({stream.index for stream, _ in self._claims}))

    def capturing(self, stream_id: int) -> bool:
        """Whether launches of the stream are recorded instead of run."""
        return self._captures.is_capturing(stream_id)

    def on_failure(self, stream: Stream, error: GpuwireError) -> None:
        """Work of `stream` failed for a cause of its own: the next flush raises it."""
        stream.failures.append(detached(error))
        self._timings.spoil(stream, error)
        self._utilities.logger.basic(f"work failed: {error}")

    # --- Wiring -------------------------------------------------------------------------------

    def _prepare_stream(self, stream: Stream) -> None:
        stream.memory = MemoryManager(
            self._storage.pages(STORAGE_USAGE),
            alignment=self._memory_properties.alignment,
            config=self._memory_config,
            logger=self._utilities.logger,
            owner=stream,
        )

    def _on_submitted(self, stream: Stream, batch: int) -> None:
        self._uploads.reclaim(stream)
        self._submissions.add(batch, stream.programs)

    def _on_failed_batch(self, stream: Stream, batch: int, error: NativeError) -> None:
        failure = self._scope.new_failure(
            self.lost() or ExecutionError(f"the driver refused a batch of work: {error.message}")
        )
        self._scope.failed_batches[batch] = failure
        self.on_failure(stream, failure.error)
