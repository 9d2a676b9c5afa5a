"""Just enough of an HTTP client: what a browser would send, and what comes back."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One connection to a dashboard, for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, url: str, **options: Any) -> Connection:
        parts = urlsplit(url)
        context = None
        if parts.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return cls(*await asyncio.open_connection("127.0.0.1", parts.port, ssl=context, **options))

    def ask(self, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> None:
        named = {"host": "localhost", "content-length": str(len(body)), "connection": "close"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def snapshot(self) -> dict[str, Any]:
        """The next event of `/events`."""
        while True:
            line = await self.reader.readline()
            if not line:
                raise EOFError("the stream has ended")
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))  # type: ignore[no-any-return]

    def close(self) -> None:
        self.writer.close()


async def request(url: str, path: str, **options: Any) -> Answer:
    """The whole answer to one request."""
    connection = await Connection.to(url)
    connection.ask(path, **options)
    status, headers = await connection.head()
    body = await connection.reader.read()
    connection.close()
    return Answer(status, headers, body)
