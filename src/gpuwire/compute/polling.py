"""Knowing when the device has finished: callbacks, and the thread that asks for them.

wgpu 29's blocking poll holds a lock that every submit needs until the device is idle
(gfx-rs/wgpu#9470), so a thread that blocked there would stop the stream. The poller's thread asks
without blocking, in pauses that `Pace` knows, and only while somebody awaits something: an
idle server has no thread awake. A thread that waits itself (`Completion.wait`) may block: the
server is driven from one thread, and that one is waiting.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gpuwire.compute.completion import Completion
from gpuwire.compute.native import NULL, NativeDevice, Pointer, ffi, lib
from gpuwire.errors import DeviceLost, GpuwireError

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 20e-6
FIRST_PAUSE_MOST_SECONDS = 200e-6
"""After long waits a first pause is longer, but no longer than this: what comes may be short."""
LAST_PAUSE_SECONDS = 500e-6
PAUSE_GROWTH = 1.3
NEAR = 0.85
"""From this share of the usual time on, an end is looked for closely …"""
FINEST = 40
"""… in pauses of the usual time over this."""

MAP_READ = 1
MAP_WRITE = 2

_Finish = Callable[[GpuwireError | None], None]


class Pace:
    """How long to pause between two questions.

    Pauses grow with the wait, so that a long one costs few questions. Work mostly takes as long as
    the work before it did: about then they are short.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._usual = 0.0
        """Seconds that the last wait took."""
        self._pause = FIRST_PAUSE_SECONDS

    def begin(self, now: float) -> None:
        """A wait begins."""
        self._began = now
        self._pause = max(FIRST_PAUSE_SECONDS, min(self._usual / 4, FIRST_PAUSE_MOST_SECONDS))

    def ended(self, now: float) -> None:
        """What was waited for has ended, and the wait for what comes next begins."""
        self._usual = now - self._began
        self.begin(now)

    def pause(self, now: float) -> float:
        """Seconds until the next question, after one in vain at `now`."""
        waited, near = now - self._began, self._usual * NEAR
        if near <= waited < self._usual / NEAR:
            return min(max(FIRST_PAUSE_SECONDS, self._usual / FINEST), LAST_PAUSE_SECONDS)
        pause = self._pause
        self._pause = min(pause * PAUSE_GROWTH, LAST_PAUSE_SECONDS)
        return max(FIRST_PAUSE_SECONDS, min(pause, near - waited)) if waited < near else pause


class Poller:
    """Turns wgpu's callbacks into calls of Python, and keeps asking for them while asked to."""

    def __init__(self, device: NativeDevice) -> None:
        self._device = device
        self._waiting: dict[int, _Finish] = {}
        self._numbers = itertools.count(1)
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._map_callback, self._work_callback = _callbacks(self._waiting)
        self._map_info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._map_info.mode = lib.WGPUCallbackMode_AllowSpontaneous
        self._map_info.callback = self._map_callback
        self._work_info = ffi.new("WGPUQueueWorkDoneCallbackInfo *")
        self._work_info.mode = lib.WGPUCallbackMode_AllowSpontaneous
        self._work_info.callback = self._work_callback

    def map(self, buffer: Pointer, mode: int, size: int, finish: _Finish) -> None:
        """Map the first `size` bytes once the work submitted so far that uses them has ended."""
        number = next(self._numbers)
        self._waiting[number] = finish
        self._map_info.userdata1 = ffi.cast("void *", number)
        lib.wgpuBufferMapAsync(buffer, mode, 0, size, self._map_info[0])

    def when_work_done(self, finish: _Finish) -> None:
        """Call `finish` once everything submitted so far has ended."""
        number = next(self._numbers)
        self._waiting[number] = finish
        self._work_info.userdata1 = ffi.cast("void *", number)
        lib.wgpuQueueOnSubmittedWorkDone(self._device.queue, self._work_info[0])

    def completion(self) -> Completion[Any]:
        """A completion that keeps the device asked while it is awaited."""
        return Completion(drive=self.drive, watch=self.watch)

    def drive(self, completion: Completion[Any]) -> None:
        """Block this thread until the completion is done."""
        while not completion.done:
            lib.wgpuDevicePoll(self._device.pointer, True, NULL)
            if not completion.done:
                self._fail_if_lost()
                # Whoever polled in between is telling it; the library has nothing to wait on.
                time.sleep(FIRST_PAUSE_SECONDS)

    def poll(self) -> None:
        """Take in what has ended, without waiting: 1 µs."""
        lib.wgpuDevicePoll(self._device.pointer, False, NULL)

    def wait_for_work(self) -> None:
        """Block until everything submitted so far has ended."""
        lib.wgpuDevicePoll(self._device.pointer, True, NULL)

    def watch(self) -> None:
        """Keep asking until nothing is waited for any longer."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpuwire-poller", daemon=True)
            self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """End the thread; what still waits fails."""
        self._closed = True
        self._wanted.set()
        thread = self._thread
        # A server that is collected on the poller's own thread cannot wait for it.
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._fail(DeviceLost("the compute server was closed", reason="closed"))

    def _fail_if_lost(self) -> None:
        """A lost device calls nobody back."""
        lost = self._device.lost
        if lost is not None:
            message = f"the GPU device was lost: {lost.message}"
            self._fail(DeviceLost(message, reason=lost.message))

    def _fail(self, error: DeviceLost) -> None:
        for number in tuple(self._waiting):
            finish = self._waiting.pop(number, None)
            if finish is not None:
                finish(error)

    def _run(self) -> None:
        pointer = self._device.pointer
        pace = Pace()
        while True:
            self._wanted.wait()
            self._wanted.clear()
            pace.begin(time.monotonic())
            while self._waiting and not self._closed:
                before = len(self._waiting)
                lib.wgpuDevicePoll(pointer, False, NULL)
                self._fail_if_lost()
                now = time.monotonic()
                if len(self._waiting) < before:
                    pace.ended(now)
                    continue
                time.sleep(pace.pause(now))
            if self._closed:
                return


def _callbacks(waiting: dict[int, _Finish]) -> tuple[Pointer, Pointer]:
    """One C callback of each kind for the server's life: making one for each wait costs 15 µs."""

    def finish(number: int, succeeded: bool, status: int) -> None:
        ended = waiting.pop(number, None)
        if ended is not None:
            ended(None if succeeded else _lost(status))

    def mapped(status: int, _message: Any, number: Any, _two: Any) -> None:
        finish(int(ffi.cast("uintptr_t", number)), status == lib.WGPUMapAsyncStatus_Success, status)

    def work_done(status: int, _message: Any, number: Any, _two: Any) -> None:
        succeeded = status == lib.WGPUQueueWorkDoneStatus_Success
        finish(int(ffi.cast("uintptr_t", number)), succeeded, status)

    return (
        ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", mapped),
        ffi.callback("void(WGPUQueueWorkDoneStatus, WGPUStringView, void *, void *)", work_done),
    )


def _lost(status: int) -> DeviceLost:
    return DeviceLost(
        f"the device did not finish its work (wgpu status {status})", reason=f"status {status}"
    )
