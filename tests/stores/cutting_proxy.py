"""A Unix socket in front of PostgreSQL that can lose an answer on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_READY = b"Z\x00\x00\x00\x05"  # the server's message that a statement is wholly done


class CuttingProxy:
    """Passes bytes both ways. While `cuts` is positive, a save is executed but its answer lost."""

    def __init__(self, url: str) -> None:
        server = parse_qs(urlsplit(url).query)["host"][0]
        self._server = f"{server}/.s.PGSQL.5432"
        self.folder = Path(tempfile.mkdtemp(prefix="pgcut"))
        self.url = url.replace(server, str(self.folder))
        self.cuts = 0
        self.after_cut = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one client."""
        up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        losing = asyncio.Event()
        pumps = [
            asyncio.ensure_future(self._forward(reader, up_writer, losing)),
            asyncio.ensure_future(self._answer(up_reader, writer, losing)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        writer.close()
        up_writer.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if self.cuts and b"pg_notify" in data:
                self.cuts -= 1
                losing.set()
            writer.write(data)
            await writer.drain()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if losing.is_set():
                if _READY in data:
                    self.after_cut.set()
                    return
                continue
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncIterator[CuttingProxy]:
    """Run a proxy in front of the database at `url`."""
    proxy = CuttingProxy(url)
    server = await asyncio.start_unix_server(proxy.serve, str(proxy.folder / ".s.PGSQL.5432"))
    try:
        yield proxy
    finally:
        server.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1)
        shutil.rmtree(proxy.folder, ignore_errors=True)
