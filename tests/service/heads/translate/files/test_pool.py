from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from service.engine.core.flow import begin_flow
from service.heads.translate.files import InvalidDocumentError
from service.heads.translate.files import pool as pool_module
from service.heads.translate.files.pool import FilePool, OpenFile, State
from service.heads.translate.files.protocol import FileLimits
from service.heads.translate.files.registry import open_document
from tests.service.heads.translate.files.test_documents import DOCUMENTS, WORD, shout

LIMITS = FileLimits(
    memory_bytes=256 * 1024 * 1024, cpu_seconds=20, characters=100_000, texts=1_000, result_bytes=10_000_000
)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@asynccontextmanager
async def pool(num_processes: int = 1, **limits: int) -> AsyncIterator[FilePool]:
    files = FilePool(num_processes, replace(LIMITS, **limits))
    files.start()
    try:
        yield files
    finally:
        await files.close()


async def read_and_shout(files: FilePool, name: str = "a.txt", data: bytes = b"Good morning.") -> bytes:
    async with files.open(name, data) as file:
        return await file.write(shout(file.texts))


def worker_of(file: OpenFile) -> int:
    """The process that forks one for each file."""
    return file._process.pid


def reader_of(file: OpenFile) -> int:
    """The process that has this file."""
    return children(worker_of(file))[0]


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def state(pid: int) -> str:
    """As in ps: Z for a process that has ended, "" for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_process_gives_what_the_reader_gives(name: str) -> None:
    async def run() -> tuple[list[str], bytes]:
        async with pool() as files, files.open(name, DOCUMENTS[name]) as file:
            return file.texts, await file.write(shout(file.texts))

    document = open_document(name, DOCUMENTS[name])
    assert asyncio.run(run()) == (document.texts, document.render(shout(document.texts)))


@linux_only
def test_every_file_has_a_process_of_its_own() -> None:
    async def run() -> None:
        async with pool() as files:
            async with files.open("a.txt", b"One.") as first:
                worker, reader = worker_of(first), reader_of(first)
                await first.write(["Eins."])
            async with files.open("a.txt", b"Two.") as second:
                assert worker_of(second) == worker
                assert reader_of(second) != reader
                assert second.texts == ["Two."]

    asyncio.run(run())


def test_a_refused_file_does_not_stop_the_next() -> None:
    async def run() -> None:
        async with pool() as files:
            for _ in range(3):
                with pytest.raises(InvalidDocumentError, match="the file holds control characters"):
                    await read_and_shout(files, data=b"\x00")
                assert await read_and_shout(files) == b"GOOD MORNING."

    asyncio.run(run())


@linux_only
def test_a_file_that_nobody_wants_any_more_leaves_its_process_free() -> None:
    async def run() -> None:
        async with pool() as files:
            workers = set()
            for _ in range(3):
                with suppress(LookupError):
                    async with files.open("a.txt", b"One.") as file:
                        workers.add(worker_of(file))
                        raise LookupError
                async with files.open("a.txt", b"Two.") as file:
                    workers.add(worker_of(file))
                    assert await file.write(shout(file.texts)) == b"TWO."
            assert len(workers) == 1

    asyncio.run(run())


def many_elements(count: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        body = "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * (count // 3)
        file.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}">{body}</w:document>')
    return stream.getvalue()


@linux_only
@pytest.mark.parametrize(
    ("limits", "name", "data", "message"),
    [
        ({"memory_bytes": 64 * 1024 * 1024}, "a.docx", many_elements(300_000), "bytes of memory to read"),
        ({"memory_bytes": 64 * 1024 * 1024}, "a.txt", b"a" * 60_000_000, "bytes of memory to read"),
        ({"cpu_seconds": 1, "texts": 10**6}, "a.docx", many_elements(999_000), "more than 1 seconds of processor time"),
        ({"characters": 3}, "a.txt", b"four", "texts have 4 characters, allowed: 3"),
        ({"texts": 2}, "a.html", b"<p>1<p>2<p>3", "has 3 texts, allowed: 2"),
        ({"result_bytes": 12}, "a.txt", b"Good morning.", "the translated file has 13 bytes, allowed: 12"),
    ],
    ids=["memory-of-elements", "memory-of-text", "processor-time", "characters", "texts", "result"],
)
def test_a_file_beyond_its_limits_is_refused_in_words_and_the_next_is_served(
    limits: dict[str, int], name: str, data: bytes, message: str
) -> None:
    async def run() -> None:
        async with pool(**limits) as files:
            with pytest.raises(InvalidDocumentError, match=message):
                await read_and_shout(files, name, data)
            assert await read_and_shout(files, data=b"Hi") == b"HI" if limits.get("characters") != 3 else True

    asyncio.run(run())


@linux_only
def test_a_file_that_breaks_its_reader_takes_no_other_with_it() -> None:
    async def run() -> None:
        async with pool(2) as files, files.open("a.txt", b"Good evening.") as other:
            async with files.open("a.txt", b"Good morning.") as file:
                worker = worker_of(file)
                os.kill(reader_of(file), signal.SIGSEGV)
                with pytest.raises(InvalidDocumentError, match="breaks its reader \\(SIGSEGV\\)"):
                    await file.write(["Guten Morgen."])
            async with files.open("a.txt", b"Good night.") as replacement:
                assert worker_of(replacement) not in (worker, worker_of(other))
            assert await other.write(shout(other.texts)) == b"GOOD EVENING."

    asyncio.run(run())


@linux_only
def test_a_late_file_is_killed_and_its_place_taken() -> None:
    async def run() -> None:
        async with pool(texts=10**6, characters=10**7) as files:
            reading = asyncio.create_task(read_and_shout(files, "a.docx", many_elements(999_000)))
            (spawned,) = files._started
            worker = (await spawned).pid
            await until(lambda: bool(children(worker)))
            (reader,) = children(worker)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await read_and_shout(files) == b"GOOD MORNING."
            await until(lambda: state(worker) == state(reader) == "")

    asyncio.run(run())


@linux_only
def test_a_reader_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "GIVE_UP", "SIGHUP")  # which is ignored

    async def run() -> None:
        async with pool() as files:
            async with files.open("a.txt", b"Good morning.") as file:
                worker = worker_of(file)
                file.state = State.BUSY
            await until(lambda: state(worker) == "")
            assert await read_and_shout(files) == b"GOOD MORNING."

    asyncio.run(run())


def test_a_file_whose_sentences_are_translated_keeps_no_process_from_others() -> None:
    async def run() -> None:
        async with pool() as files:
            async with files.open("a.txt", b"Long ago.") as long:
                for number in range(3):
                    assert await read_and_shout(files, data=f"Short {number}.".encode()) == f"SHORT {number}.".encode()
                assert await long.write(shout(long.texts)) == b"LONG AGO."
            assert await read_and_shout(files) == b"GOOD MORNING."

    asyncio.run(run())


def test_files_that_are_open_at_once_need_one_process() -> None:
    async def translate(files: FilePool, name: str, translated: asyncio.Event) -> bytes:
        async with files.open(name, DOCUMENTS[name]) as file:
            await translated.wait()
            return await file.write(shout(file.texts))

    async def run() -> None:
        names = sorted(DOCUMENTS)
        async with pool() as files:
            translated = asyncio.Event()
            tasks = [asyncio.create_task(translate(files, name, translated)) for name in names]
            await until(lambda: len(files._parked) == 1 and files._openers.next() is None)
            translated.set()
            for name, data in zip(names, await asyncio.gather(*tasks), strict=True):
                document = open_document(name, DOCUMENTS[name])
                assert data == document.render(shout(document.texts))

    asyncio.run(run())


def test_clients_take_turns() -> None:
    async def run() -> list[str]:
        order: list[str] = []

        async def read(files: FilePool, client: str, data: bytes) -> None:
            begin_flow(client)
            async with files.open("a.txt", data) as file:
                order.append(client)
                await file.write(shout(file.texts))

        async with pool() as files:
            asked = [("a", b"One.")] * 6 + [("b", b"Two.")] * 2
            await asyncio.gather(*[read(files, client, data) for client, data in asked])
        return order

    # All had asked before the first was read, and then none of b waits for more than one of a.
    assert "".join(asyncio.run(run())).startswith(("ababa", "aabab"))


def test_one_that_leaves_while_it_waits_takes_no_process_along() -> None:
    async def run() -> None:
        async with pool() as files:
            spawned = await files.acquire(1)
            waiting = [asyncio.create_task(read_and_shout(files)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            files._release(spawned)
            waiting[1].cancel()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(each, asyncio.CancelledError) for each in done] == [True, True, False]
            assert await read_and_shout(files) == b"GOOD MORNING."
            assert len(files._free) == 1

    asyncio.run(run())


@linux_only
def test_a_process_that_dies_while_it_waits_is_replaced() -> None:
    async def run() -> None:
        async with pool() as files:
            (spawned,) = files._started
            process = await spawned
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            assert await read_and_shout(files) == b"GOOD MORNING."

    asyncio.run(run())


@linux_only
def test_signals_to_the_group_do_not_end_an_accepted_file() -> None:
    async def run() -> None:
        async with pool() as files, files.open("a.txt", b"Good morning.") as file:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.killpg(worker_of(file), number)
            assert await file.write(["Guten Morgen."]) == b"Guten Morgen."

    asyncio.run(run())


@linux_only
def test_nothing_runs_after_the_end() -> None:
    async def run() -> list[int]:
        async with pool(2) as files, files.open("a.txt", b"One.") as file:
            return [reader_of(file), worker_of(file), *[(await spawned).pid for spawned in files._started]]

    assert [state(pid) for pid in asyncio.run(run())] == ["", "", "", ""]


@linux_only
def test_the_servers_secrets_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHEAD_API_KEYS", "secret")
    monkeypatch.setenv("OTHER_TOKEN", "secret")

    async def run() -> bytes:
        async with pool() as files, files.open("a.txt", b"One.") as file:
            return environment(worker_of(file))

    assert b"secret" not in asyncio.run(run())


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        (
            "service.heads.translate.files.worker",
            {"onnxruntime", "numpy", "tokenizers", "fastapi", "pydantic", "asyncio"},
        ),
        ("service.app", {"lxml", "charset_normalizer", "requests"}),
    ],
)
def test_parsers_and_models_are_in_different_processes(module: str, forbidden: set[str]) -> None:
    code = f"import sys, {module}; print(sorted({forbidden} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "[]"
