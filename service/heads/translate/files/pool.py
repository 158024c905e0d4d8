"""Files are read and written in processes of their own, a few of them: no file can harm the server.

What a file may take is limited by the operating system (see `worker`). A process that ends or is late is replaced.

No file keeps a process from others while its sentences are translated: where none is free, the process of one that
waits for its translations reads the next, and that one is read once more when they are there. Those that wait for a
process have it in turns, by client.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path, PurePath

import orjson

from service.engine.core.flow import Flow, current_flow
from service.engine.core.turns import Turns
from service.heads.translate.files.errors import InvalidDocumentError
from service.heads.translate.files.protocol import (
    ABANDON,
    DATA,
    FAILED,
    FRAME,
    GIVE_UP,
    JOB,
    OUT_OF_MEMORY,
    REFUSED,
    TEXTS,
    FileLimits,
)

logger = logging.getLogger(__name__)

_MODULE = "service.heads.translate.files.worker"
_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "SYSTEMROOT")
_MAX_MESSAGE_BYTES = 64 * 1024
_GIVE_UP_SECONDS = 1.0
_BUFFER_BYTES = 1024 * 1024
_OUT_OF_LIMITS = frozenset(
    128 + getattr(signal, name) for name in ("SIGXCPU", "SIGKILL") if hasattr(signal, name)
)  # the operating system ended the process at a limit


class State(Enum):
    """What the process does for the file."""

    BUSY = auto()
    """The process works, and sends nothing until it is done."""
    WAITING = auto()
    """It has given the texts and waits for their translations."""
    FREE = auto()
    """It is done with the file."""


class OpenFile:
    """A file that a process has read. `texts` are what there is to translate."""

    def __init__(self, pool: FilePool, name: str, data: bytes, limits: FileLimits) -> None:
        self.texts: list[str] = []
        self.state = State.BUSY
        self._pool = pool
        self._spawned: asyncio.Task[Process] | None = None
        self._name = name
        self._data = data
        self._limits = limits

    @property
    def _process(self) -> Process:
        assert self._spawned is not None  # `_begin` has one
        return self._spawned.result()

    async def _begin(self) -> list[str]:
        """Have the file read, by a process that it then keeps."""
        self.state = State.BUSY
        self._spawned = await self._pool.acquire(len(self._data))
        await asyncio.shield(self._spawned)
        job = {"name": self._name, "limits": dataclasses.asdict(self._limits)}
        # Every character is at most six bytes of JSON, and every text has two quotes and a comma.
        longest = 6 * self._limits.characters + 3 * self._limits.texts + 2
        frames = ((JOB, json.dumps(job).encode()), (DATA, self._data))
        texts: list[str] = orjson.loads(await self._ask(frames, TEXTS, longest))
        self.state = State.WAITING
        return texts

    async def read(self) -> None:
        """Have the file read. InvalidDocumentError for one that is damaged or takes more than its limits."""
        self.texts = await self._begin()
        self._pool.park(self)

    async def write(self, translations: Sequence[str]) -> bytes:
        """The translated file, from one translation for each of `texts`. InvalidDocumentError as for `read`."""
        self._pool.unpark(self)
        if self._spawned is None:
            await self._begin()  # which gives the same texts: nothing but the file says what they are
        self.state = State.BUSY
        frames = ((TEXTS, orjson.dumps(translations)),)
        data = await self._ask(frames, DATA, self._limits.result_bytes)
        self.state = State.FREE
        return data

    def leave(self) -> asyncio.Task[Process] | None:
        """The process, which can have another file now, or is to be replaced where it is BUSY; None if it has none."""
        spawned, self._spawned = self._spawned, None
        if spawned is not None and self.state is State.WAITING:
            _abandon(spawned.result())
        return spawned

    async def _ask(self, frames: Sequence[tuple[bytes, bytes]], wanted: bytes, longest: int) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # the pool opens both
        assert stdout is not None
        try:
            for kind, content in frames:
                stdin.write(FRAME.pack(kind, len(content)))
                stdin.write(content)
            await stdin.drain()
            kind, length = FRAME.unpack(await stdout.readexactly(FRAME.size))
            if length > (longest if kind == wanted else _MAX_MESSAGE_BYTES):
                raise RuntimeError(f"the file's process answered with {length} bytes, allowed: {longest}")
            content = await stdout.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise await self._death() from error
        if kind == wanted:
            return content
        if kind not in (REFUSED, FAILED):
            raise RuntimeError(f"the file's process answered with {kind!r} where {wanted!r} was expected")
        if kind == REFUSED:
            self.state = State.FREE
            raise InvalidDocumentError(content.decode())
        raise RuntimeError(f"a {PurePath(self._name).suffix} file could not be read: {content.decode()}")

    async def _death(self) -> Exception:
        code = await self._process.wait()
        suffix = PurePath(self._name).suffix
        logger.warning("the process of a %s file of %d bytes ended with code %d", suffix, len(self._data), code)
        if code == OUT_OF_MEMORY:
            return InvalidDocumentError(f"the file takes more than {self._limits.memory_bytes} bytes of memory to read")
        if code in _OUT_OF_LIMITS:
            return InvalidDocumentError(
                f"the file takes more than {self._limits.cpu_seconds} seconds of processor time or "
                f"{self._limits.memory_bytes} bytes of memory to read"
            )
        if code > 128:
            return InvalidDocumentError(
                f"the file breaks its reader ({signal.Signals(code - 128).name}): it is damaged, or takes more than "
                f"{self._limits.memory_bytes} bytes of memory to read"
            )
        return RuntimeError(f"the process that reads files ended with code {code}")


@dataclass(eq=False, slots=True)
class _Opener:
    """One that waits for a process; `cost` is in bytes of its file."""

    flow: Flow
    cost: int
    process: asyncio.Future[asyncio.Task[Process]]
    start: float = 0.0


class FilePool:
    """`num_processes` processes, each with one file at a time. For use on one event loop."""

    def __init__(self, num_processes: int, limits: FileLimits) -> None:
        self._num_processes = num_processes
        self._limits = limits
        self._free: list[asyncio.Task[Process]] = []
        self._parked: dict[OpenFile, None] = {}  # those whose translations are awaited, the longest first
        self._openers: Turns[_Opener] = Turns(lambda opener: not opener.process.done())
        self._started: set[asyncio.Task[Process]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        """Begin to start the processes, and wait for none of them."""
        for _ in range(self._num_processes):
            self._free.append(self._spawn())

    @asynccontextmanager
    async def open(self, name: str, data: bytes) -> AsyncIterator[OpenFile]:
        """A file, as soon as it can be read. Leaving the block without `write` gives the file up.

        Raises InvalidDocumentError, and RuntimeError for a fault of our own.
        """
        file = OpenFile(self, name, data, self._limits)
        try:
            await file.read()
            yield file
        finally:
            self.unpark(file)
            if (spawned := file.leave()) is not None:
                self._release(self._replace(spawned) if file.state is State.BUSY else spawned)

    async def acquire(self, num_bytes: int) -> asyncio.Task[Process]:
        """A process for a file of so many bytes: a free one, else that of a parked file, else the next in turn."""
        if self._free:
            spawned = self._free.pop()
        elif self._parked:
            spawned = self._take_parked()
        else:
            spawned = await self._next_process(num_bytes)
        if spawned.done() and (spawned.exception() or spawned.result().returncode is not None):
            return self._replace(spawned)  # it ended while it had nothing to do
        return spawned

    async def _next_process(self, num_bytes: int) -> asyncio.Task[Process]:
        opener = _Opener(current_flow(), num_bytes, asyncio.get_running_loop().create_future())
        self._openers.add(opener.flow, [opener])
        try:
            return await opener.process
        except asyncio.CancelledError:
            if opener.process.done() and not opener.process.cancelled():  # it came as the caller left
                self._release(opener.process.result())
            raise

    def park(self, file: OpenFile) -> None:
        """`file` needs its process no more until its translations are there; others may have it."""
        self._parked[file] = None
        if self._openers.next() is not None:
            self._release(self._take_parked())

    def unpark(self, file: OpenFile) -> None:
        """Nobody may take the process of `file` any more."""
        self._parked.pop(file, None)

    def _take_parked(self) -> asyncio.Task[Process]:
        file = next(iter(self._parked))
        del self._parked[file]
        spawned = file.leave()
        assert spawned is not None  # a parked file has one
        return spawned

    def _release(self, spawned: asyncio.Task[Process]) -> None:
        opener = self._openers.next()
        if opener is None:
            self._free.append(spawned)
        else:
            self._openers.take([opener])
            opener.process.set_result(spawned)

    async def close(self) -> None:
        """End all processes, and start none any more; a file that one has is lost."""
        self._is_closed = True
        await asyncio.gather(*map(self._end, list(self._started)), *self._endings)

    def _spawn(self) -> asyncio.Task[Process]:
        spawned = asyncio.get_running_loop().create_task(_start_process())
        self._started.add(spawned)
        return spawned

    def _replace(self, spawned: asyncio.Task[Process]) -> asyncio.Task[Process]:
        """Kill this process, whatever it does, and start another."""
        if self._is_closed:
            return spawned
        ending = asyncio.get_running_loop().create_task(self._end(spawned))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return self._spawn()

    async def _end(self, spawned: asyncio.Task[Process]) -> None:
        self._started.discard(spawned)
        try:
            process = await spawned
        except OSError:
            logger.exception("a process to read files could not be started")
            return
        _signal(process, GIVE_UP)
        try:
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                await process.wait()
        except TimeoutError:
            _signal(process, "SIGKILL")
            await process.wait()


def _environment() -> dict[str, str]:
    """Modules are found where this process finds them; nothing else is passed on but what Python needs to start."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"PYTHONPATH": path}


async def _start_process() -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", _MODULE),  # -P: the working folder may hold files of any name
        stdin=PIPE,
        stdout=PIPE,
        limit=_BUFFER_BYTES,
        env=_environment(),
        start_new_session=True,  # the leader of a group: its children are killed with it
    )


def _signal(process: Process, name: str) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):  # it has just ended by itself
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.Signals[name])


def _abandon(process: Process) -> None:
    assert process.stdin is not None  # the pool opens it
    process.stdin.write(FRAME.pack(ABANDON, 0))
