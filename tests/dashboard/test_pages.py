"""What a dashboard answers, and to whom."""

from __future__ import annotations

import asyncio
import re
import socket
from urllib.parse import quote

from dashboard.http_client import Connection, request
from gpuwire.dashboard.serving import Dashboard
from gpuwire.server import Server, TokenStore
from gpuwire.telemetry.event_block import unpacked
from gpuwire.telemetry.plain import from_plain
from gpuwire.telemetry.snapshots import ServerSnapshot
from gpuwire.transport import Ticket
from host_tasks import add, read, register, reshape
from plain_client import PlainClient, plain_client


async def compute(client: PlainClient, first: int, count: int = 1) -> None:
    tasks = [reshape(first, (2, 2), first + n) for n in range(1, count)]
    client.send(register(first, [1, 2, 3, 4]), *tasks, add(first, 1.0, first + count))
    client.send(read(first + count, request=first))
    await client.reply(first)


def test_a_page_brings_nothing_from_elsewhere_and_nothing_inline(
    runner: asyncio.Runner, server: Server, local: Dashboard
) -> None:
    async def check() -> None:
        async with local.serve(server):
            page = await request(local.url, "/")
            assert page.status == 200
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            text = page.body.decode()
            named = re.findall(r'(?:src|href)="([^"]+)"', text)
            assert {name[0] for name in named} <= {"/", "#"}
            assert "<style" not in text
            assert " style=" not in text
            scripts = [name for name in named if name.startswith("/static/")]
            for name in scripts:
                file = await request(local.url, name)
                assert file.status == 200, name
                for imported in re.findall(r'from "([^"]+)"', file.body.decode()):
                    assert imported in scripts, f"{imported} is not loaded ahead"
            assert (await request(local.url, "/static/../page.js")).status == 404
            assert (await request(local.url, "/static/absent.js")).status == 404

    runner.run(check())


def test_events_are_snapshots_and_metrics_have_units(
    runner: asyncio.Runner, server: Server, local: Dashboard
) -> None:
    async def check() -> None:
        async with local.serve(server), plain_client(server.ticket) as client:
            viewer = await Connection.to(local.url)
            viewer.ask("/events")
            status, headers = await viewer.head()
            assert (status, headers["content-type"][:17]) == (200, "text/event-stream")
            first = from_plain(ServerSnapshot, await viewer.snapshot())
            assert first.viewers == 1
            await compute(client, 1)
            names: list[str] = []
            while "read" not in names:
                now = from_plain(ServerSnapshot, await viewer.snapshot())
                names += [event.name for _, block in now.events for event in unpacked(block)]
            assert names == ["upload", "add", "read"]
            metrics = (await request(local.url, "/metrics")).body.decode()
            viewer.close()
        assert 'gpuwire_sessions{device="0"} 1.0' in metrics
        assert "gpuwire_tasks_total 3.0" in metrics
        in_use = re.search(
            r'gpuwire_pool_bytes\{device="0",pool="small",state="in_use"\} (\S+)', metrics
        )
        assert in_use is not None
        assert float(in_use[1]) > 0

    runner.run(check())


def test_another_sites_page_cannot_reach_it_by_a_name_of_its_own(
    runner: asyncio.Runner, server: Server, local: Dashboard
) -> None:
    async def check() -> None:
        async with local.serve(server):
            for path in ("/", "/events", "/metrics", "/graph/0/1/1"):
                answer = await request(local.url, path, host="evil.example")
                assert answer.status == 401
                assert "answers to localhost only" in answer.json()["message"]

    runner.run(check())


def test_a_network_address_wants_a_token_over_tls(
    runner: asyncio.Runner, server: Server, public: Dashboard
) -> None:
    async def check() -> None:
        ticket = Ticket.parse(server.ticket)
        async with public.serve(server):
            assert public.url.startswith("https://")
            page = await request(public.url, "/")
            assert (page.status, b"behind the server's token" in page.body) == (401, True)
            assert (await request(public.url, "/metrics")).status == 401
            assert (await request(public.url, "/events")).status == 401

            wrong = await request(public.url, "/enter", method="POST", body=b"token=<b>wrong")
            assert wrong.status == 401
            assert b"does not know this token" in wrong.body
            assert "set-cookie" not in wrong.headers
            bearer = await request(public.url, "/metrics", authorization="Bearer wrong")
            assert bearer.status == 401

            # The whole ticket, as people have it at hand.
            form = f"token={quote(ticket.format())}".encode()
            right = await request(public.url, "/enter", method="POST", body=form)
            assert (right.status, right.headers["location"]) == (303, "/")
            cookie = right.headers["set-cookie"]
            assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=strict"))
            assert ticket.token not in cookie
            page = await request(public.url, "/", cookie=cookie.partition(";")[0])
            assert page.status == 200

            metrics = await request(public.url, "/metrics", authorization=f"Bearer {ticket.token}")
            assert metrics.status == 200

    runner.run(check())


def test_another_token_shows_its_own_sessions_only(
    runner: asyncio.Runner, server: Server, public: Dashboard
) -> None:
    async def check() -> None:
        alice = TokenStore(server.state_dir).add("alice")
        async with public.serve(server), plain_client(server.ticket):
            viewer = await Connection.to(public.url)
            viewer.ask("/events", authorization=f"Bearer {alice}")
            await viewer.head()
            snapshot = await viewer.snapshot()
            assert (snapshot["whole"], snapshot["sessions"], snapshot["log"]) == (False, [], [])
            viewer.close()

    runner.run(check())


def test_a_viewer_that_stops_reading_is_given_up_and_disturbs_nobody(
    runner: asyncio.Runner, server: Server, local: Dashboard
) -> None:
    async def check() -> None:
        async with local.serve(server), plain_client(server.ticket) as client:
            deaf = socket.create_connection(("127.0.0.1", int(local.url.split(":")[2][:-1])))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            viewer = await Connection.to(local.url, limit=1 << 20)
            viewer.ask("/events")
            await viewer.head()
            seen, number = 0, 1
            while True:
                snapshot = await viewer.snapshot()
                seen = max(seen, snapshot["viewers"])
                if seen == 2 and snapshot["viewers"] == 1:
                    break
                # Many operations make long snapshots, which fill the socket's buffers sooner.
                await compute(client, number, 300)
                number += 1000
            assert snapshot["missed"] == 0, "the one that reads has seen everything"
            viewer.close()
            deaf.close()

    runner.run(check())


def test_its_end_ends_every_stream(
    runner: asyncio.Runner, server: Server, local: Dashboard
) -> None:
    async def check() -> None:
        viewer = await _opened(local, server)
        try:
            while True:
                await viewer.snapshot()
        except EOFError:
            viewer.close()

    async def _opened(dashboard: Dashboard, server: Server) -> Connection:
        async with dashboard.serve(server):
            viewer = await Connection.to(dashboard.url)
            viewer.ask("/events")
            await viewer.head()
            await viewer.snapshot()
            return viewer

    runner.run(check())
