"""The process in which files are read and written: `python -m service.heads.translate.files.worker`.

A file may be made to exhaust memory or processor time, or to break a parser written in C. So the server opens none
itself. This process loads the parsers once and forks a child for each file. The child sees nothing of another file and
has limits of the operating system: memory, CPU time, no file to write, no core dump. When a child dies, this
process ends with 128 plus the signal, as a shell does, and the server starts another.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from service.heads.translate.files.errors import DocumentError, InvalidDocumentError
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
from service.heads.translate.files.registry import open_document

_CLOSED = 3
"""Exit code of a child whose pipe the server has closed."""
_NICENESS = 5
"""Files give way to the models' threads."""


class _AbandonedError(Exception):
    """The server no longer needs the translated file."""


def main() -> int:
    """Serve one file after the other until standard input is closed; the exit code."""
    # The server decides when this ends. A signal to the whole group, as of Ctrl-C, must not end an accepted file.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", GIVE_UP):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with FileIO(os.dup(0)) as requests, os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)  # what a library prints must not come between the frames
        if not hasattr(os, "fork"):
            return _serve(requests, replies)  # one file is all that this process sees; the server starts another
        while True:
            child = os.fork()
            if child == 0:
                code = 1
                signal.signal(getattr(signal, GIVE_UP), signal.SIG_DFL)
                try:
                    code = _serve(requests, replies)
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code:
                return 0 if code == _CLOSED else code if code > 0 else 128 - code


def _serve(requests: FileIO, replies: BinaryIO) -> int:
    """Read and write one file; the exit code, 0 when the next file can follow on the same pipes."""
    try:
        job = json.loads(_receive(requests, JOB))
        limits = FileLimits(**job["limits"])
        _limit(limits)
        data = _receive(requests, DATA)
        document = open_document(job["name"], data)
        del data
        _check_texts(document.texts, limits)
        _send(replies, TEXTS, json.dumps(document.texts, ensure_ascii=False).encode())
        result = document.render(json.loads(_receive(requests, TEXTS)))
        if len(result) > limits.result_bytes:
            raise InvalidDocumentError(f"the translated file has {len(result)} bytes, allowed: {limits.result_bytes}")
        _send(replies, DATA, result)
    except DocumentError as error:
        _send(replies, REFUSED, str(error).encode(errors="replace"))
    except _AbandonedError:
        return 0
    except MemoryError:
        return OUT_OF_MEMORY
    except (EOFError, BrokenPipeError):
        return _CLOSED
    except Exception as error:  # noqa: BLE001  # the server logs it
        # Not the message, which may hold words of the file: no log may.
        trace = "".join(traceback.format_tb(error.__traceback__))
        _send(replies, FAILED, f"{type(error).__name__}\n{trace}".encode())
        return 1
    return 0


def _check_texts(texts: list[str], limits: FileLimits) -> None:
    if len(texts) > limits.texts:
        raise InvalidDocumentError(f"the file has {len(texts)} texts, allowed: {limits.texts}")
    if (characters := sum(map(len, texts))) > limits.characters:
        raise InvalidDocumentError(f"the file's texts have {characters} characters, allowed: {limits.characters}")


def _receive(requests: FileIO, kind: bytes) -> bytes:
    """The content of the next frame; EOFError when the server has closed the pipe."""
    found, length = FRAME.unpack(_read(requests, FRAME.size))
    if found == ABANDON:
        raise _AbandonedError
    if found != kind:
        raise ValueError(f"a frame of kind {found!r} came where {kind!r} was expected")
    return _read(requests, length)


def _read(requests: FileIO, length: int) -> bytes:
    """So many bytes and no more: the next ones may be for the next child."""
    content = bytearray(length)
    rest = memoryview(content)
    while rest:
        count = requests.readinto(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    rest.release()
    return bytes(content)


def _send(replies: BinaryIO, kind: bytes, content: bytes) -> None:
    replies.write(FRAME.pack(kind, len(content)))
    replies.write(content)
    replies.flush()


if sys.platform == "win32":

    def _limit(limits: FileLimits) -> None:
        """Windows has no such limits: there the deadline of the request is the only one."""

else:
    import resource

    def _limit(limits: FileLimits) -> None:
        """Put this process under `limits`, irrevocably."""
        os.nice(_NICENESS)
        if sys.platform == "linux":
            # If the machine runs out of memory all the same, the kernel kills this process and not the server.
            with suppress(OSError):  # /proc may be read-only
                Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
            # macOS refuses a limit below what its own libraries have mapped.
            _set(resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
        _set(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
        _set(resource.RLIMIT_FSIZE, 0, 0)
        _set(resource.RLIMIT_CORE, 0, 0)

    def _set(which: int, soft: int, hard: int) -> None:
        _, allowed = resource.getrlimit(which)
        if allowed != resource.RLIM_INFINITY:
            soft, hard = min(soft, allowed), min(hard, allowed)
        resource.setrlimit(which, (soft, hard))


if __name__ == "__main__":
    sys.exit(main())
