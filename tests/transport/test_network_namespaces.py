"""Real interfaces, in a network namespace: small ones, ones that shrink, ones that go away.

A namespace needs root, or a kernel that lets users make one; elsewhere these tests say why they do
not run. What a relay can show is in test_datagram_size.py and test_engines.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

COMMON = """
import asyncio, hashlib, json, subprocess, sys
from gpuwire.transport import *

async def handler(connection):
    control = await connection.accept_control()
    while True:
        stream = await connection.accept_bulk()
        digest = hashlib.sha256()
        while data := await stream.read(1 << 20):
            digest.update(data)
        await control.writer.write(digest.digest() + connection.path.host.encode().ljust(16))

async def opened(host, port, fingerprint, **options):
    link = await connect(host, port, PinnedKey(fingerprint), TransportOptions(**options))
    control = await link.open_control()
    await control.writer.write(b"open")
    return link, control

async def upload(link, control, payload=bytes(300_000)):
    stream = link.open_bulk()
    await stream.write(payload)
    stream.finish()
    answer = await control.reader.readexactly(48)
    assert answer[:32] == hashlib.sha256(payload).digest()
    return answer[32:].decode().strip()

def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)
"""

SMALL = """
async def main():
    ip("link", "set", "lo", "mtu", "1400", "up")
    ip("addr", "add", "10.77.0.1/24", "dev", "lo")
    identity = Identity.create()
    options = TransportOptions(segmentation_offload=True)
    listener = await listen("10.77.0.1", 0, identity, handler, options)
    link, control = await opened(
        "10.77.0.1", listener.port, identity.fingerprint, segmentation_offload=True
    )
    for _ in range(20):
        await upload(link, control)
    print(json.dumps([link.path.datagram_bytes, link.path.offload.state]))
    link.close()
    await listener.close()
asyncio.run(main())
"""

SHRINKING = """
async def main():
    ip("link", "set", "lo", "mtu", "9000", "up")
    ip("addr", "add", "10.77.0.1/24", "dev", "lo")
    identity = Identity.create()
    listener = await listen("10.77.0.1", 0, identity, handler)
    link, control = await opened(
        "10.77.0.1", listener.port, identity.fingerprint, segmentation_offload=True
    )
    while link.path.datagram_bytes < 8952:
        await upload(link, control)
    before = link.path.offload.state
    uploading = asyncio.ensure_future(upload(link, control, bytes(60_000_000)))
    while link.path.bytes_sent < 10_000_000:
        await asyncio.wait({uploading}, timeout=0.001)
    ip("link", "set", "lo", "mtu", "1400")
    assert not uploading.done()
    await uploading
    offload = link.path.offload
    print(json.dumps([before, offload.state, offload.reason, link.path.datagram_bytes]))
    link.close()
    await listener.close()
asyncio.run(main())
"""

MOVING = """
CLIENT = COMMON + '''
async def main():
    port, fingerprint, engine = sys.argv[1:]
    ip("link", "set", "a1", "up"), ip("addr", "add", "10.1.0.2/24", "dev", "a1")
    ip("link", "set", "b1", "up"), ip("addr", "add", "10.2.0.2/24", "dev", "b1")
    ip("route", "add", "10.9.0.1", "via", "10.1.0.1")
    link, control = await opened("10.9.0.1", int(port), fingerprint, engine=engine)
    hosts = [await upload(link, control)]
    ip("addr", "del", "10.1.0.2/24", "dev", "a1"), ip("link", "set", "a1", "down")
    ip("route", "add", "10.9.0.1", "via", "10.2.0.1")
    hosts += [await upload(link, control), await upload(link, control)]
    print(json.dumps(hosts))
    link.close()
asyncio.run(main())
'''

async def main():
    ip("link", "set", "lo", "up"), ip("addr", "add", "10.9.0.1/32", "dev", "lo")
    for name, net in (("a", "10.1.0.1/24"), ("b", "10.2.0.1/24")):
        ip("link", "add", name + "0", "type", "veth", "peer", "name", name + "1")
        ip("link", "set", name + "0", "up"), ip("addr", "add", net, "dev", name + "0")
    identity = Identity.create()
    engine = sys.argv[1]
    listener = await listen("10.9.0.1", 0, identity, handler, TransportOptions(engine=engine))
    # The client waits on its standard input until its interfaces are there.
    client = await asyncio.create_subprocess_exec(
        "unshare", "--net", "sh", "-c", 'echo there; read go; exec "$@"', "sh",
        sys.executable, "-c", CLIENT, str(listener.port), identity.fingerprint, engine,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    await client.stdout.readline()
    for name in ("a1", "b1"):
        ip("link", "set", name, "netns", str(client.pid))
    said, _ = await client.communicate(b"go\\n")
    print(said.decode())
    await listener.close()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """The command that runs another in a network namespace of its own, as its root."""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no `{tool}` on this machine")
    command = ["unshare", "--net", "--map-root-user"]
    probe = subprocess.run([*command, "ip", "link"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no network namespace can be made here: {probe.stderr.strip()}")
    return command


def run_in(namespace: list[str], script: str, *arguments: str) -> Any:
    """What a script prints, as JSON."""
    done = subprocess.run(
        [*namespace, sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_interface_with_a_small_mtu_is_respected(namespace: list[str]) -> None:
    size, offload = run_in(namespace, COMMON + SMALL)
    assert 1_200 <= size <= 1_372
    assert offload == "on"


def test_an_interface_that_shrinks_refuses_offload_and_the_upload_goes_on(
    namespace: list[str],
) -> None:
    before, after, reason, size = run_in(namespace, COMMON + SHRINKING)
    assert (before, after) == ("on", "refused")
    assert "refused" in reason
    assert 1_200 <= size <= 1_372


@pytest.mark.parametrize("engine", ["aioquic", "qh3"])
def test_work_goes_on_over_another_interface_when_the_first_goes_away(
    namespace: list[str], engine: str
) -> None:
    script = f"COMMON = {COMMON!r}\nexec(COMMON)\n{MOVING}"
    assert run_in(namespace, script, engine) == ["10.1.0.2", "10.2.0.2", "10.2.0.2"]
