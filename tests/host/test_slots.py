"""Slots: one memory for two processes, handed out in order and bounded."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from gpuwire.host.slots import SLOT_BYTES, SlotMemory, SlotPool, anonymous_file


def test_another_process_sees_what_is_put_into_a_slot() -> None:
    descriptor = anonymous_file(SlotMemory.size)
    memory = SlotMemory(descriptor)
    with memory.slot(3, 5) as view:
        view[:] = b"hello"
    program = (
        "import sys; from gpuwire.host.slots import SlotMemory;"
        "m = SlotMemory(int(sys.argv[1])); v = m.slot(3, 5); sys.stdout.write(bytes(v).decode());"
        "v.release(); w = m.slot(17, 3); w[:] = b'you'"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, str(descriptor)],
        pass_fds=(descriptor,),
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(descriptor)
    assert child.stdout == "hello"
    with memory.slot(17, 3) as view:
        assert bytes(view) == b"you"
    memory.close()


def test_the_memory_has_no_name_and_takes_no_room_before_it_is_used() -> None:
    descriptor = anonymous_file(SlotMemory.size)
    status = os.fstat(descriptor)
    os.close(descriptor)
    assert status.st_size == SlotMemory.size
    assert status.st_nlink == 0
    assert status.st_blocks == 0


def test_slots_do_not_overlap() -> None:
    descriptor = anonymous_file(SlotMemory.size)
    memory = SlotMemory(descriptor)
    os.close(descriptor)
    with memory.slot(0, SLOT_BYTES) as first, memory.slot(1, SLOT_BYTES) as second:
        first[:] = b"\x01" * SLOT_BYTES
        second[:] = b"\x02" * SLOT_BYTES
        assert first[-1] == 1
    assert not set(SlotMemory.to_host) & set(SlotMemory.to_front)
    memory.close()


def test_who_waits_longest_is_served_first() -> None:
    async def scenario() -> list[str]:
        pool = SlotPool([0])
        served: list[str] = []

        async def want(name: str) -> None:
            slot = await pool.acquire()
            served.append(name)
            pool.release(slot)

        held = await pool.acquire()
        waiting = [asyncio.create_task(want(name)) for name in "abc"]
        await asyncio.sleep(0)
        assert pool.free == 0
        pool.release(held)
        await asyncio.gather(*waiting)
        assert pool.free == 1
        return served

    assert asyncio.run(scenario()) == ["a", "b", "c"]


def test_a_cancelled_wait_loses_no_slot() -> None:
    async def scenario() -> None:
        pool = SlotPool([0])
        held = await pool.acquire()
        first = asyncio.create_task(pool.acquire())
        second = asyncio.create_task(pool.acquire())
        await asyncio.sleep(0)
        pool.release(held)
        first.cancel()  # the slot is on its way to it already
        assert await second == 0
        third = asyncio.create_task(pool.acquire())
        await asyncio.sleep(0)
        third.cancel()
        pool.release(0)
        assert pool.free == 1

    asyncio.run(scenario())
