from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from service.errors import SlowdownError
from service.heads.translate.file_store import FileStore

linux_only = pytest.mark.skipif(sys.platform == "win32", reason="no locks on folders")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_files_that_are_being_written_take_room(monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    write = Path.write_bytes

    def write_later(path: Path, data: bytes) -> int:
        assert may_write.wait(10)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_later)

    async def run() -> None:
        store = FileStore(max_bytes=100, lifetime_seconds=60)
        first = asyncio.create_task(store.put("a.txt", b"x" * 60))
        await asyncio.sleep(0)  # it is with a thread now
        with pytest.raises(SlowdownError):
            await store.put("b.txt", b"y" * 60)
        second = asyncio.create_task(store.put("c.txt", b"z" * 40))
        await asyncio.sleep(0)
        may_write.set()
        assert store.get(await first).num_bytes == 60
        assert store.get(await second).num_bytes == 40
        with pytest.raises(SlowdownError):
            await store.put("d.txt", b"!")
        store.close()

    asyncio.run(run())


def test_a_failed_write_gives_its_room_back(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def fail(path: Path, data: bytes) -> int:
        raise PermissionError

    async def run() -> None:
        store = FileStore(max_bytes=100, lifetime_seconds=60)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", fail)
            for _ in range(3):
                with pytest.raises(PermissionError):
                    await store.put("a.txt", b"x" * 60)
        await store.put("a.txt", b"x" * 100)
        store.close()

    asyncio.run(run())
    assert not list(folder.iterdir())


KILLED = """
import asyncio, os, signal, sys
from service.heads.translate.file_store import FileStore
asyncio.run(FileStore(max_bytes=100, lifetime_seconds=60).put("a.txt", b"secret"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@linux_only
def test_files_of_a_killed_process_are_swept_and_those_of_a_living_one_stay(folder: Path) -> None:
    living = FileStore(max_bytes=100, lifetime_seconds=60)
    key = asyncio.run(living.put("b.txt", b"mine"))
    subprocess.run([sys.executable, "-c", KILLED], env={"TMPDIR": str(folder)}, timeout=60, check=False)
    assert sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file()) == [b"mine", b"secret"]
    other = folder / "somebody-elses"
    other.mkdir()
    (folder / "polyhead-files-link").symlink_to(other)
    FileStore(max_bytes=100, lifetime_seconds=60)
    assert [path.read_bytes() for path in folder.rglob("*") if path.is_file()] == [b"mine"]
    assert living.get(key).path.read_bytes() == b"mine"
    assert other.is_dir()
    living.close()
