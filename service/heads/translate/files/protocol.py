"""The messages between the server and the process that reads files (see `worker`).

Frames: one byte for the kind, eight for the length of the content, the content.

    server -> worker   JOB (JSON: name, limits), DATA (the file), then TEXTS (JSON: the translations) or ABANDON
    worker -> server   TEXTS (JSON: the texts), then DATA (the translated file); or REFUSED (why), or FAILED (a fault)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

JOB, DATA, TEXTS, ABANDON, REFUSED, FAILED = b"J", b"D", b"T", b"A", b"R", b"F"
FRAME = struct.Struct(">cQ")
GIVE_UP = "SIGUSR1"
"""Sent to the group, it ends the child that has the file, whatever that does; its parent reaps it and ends too. Were
both killed, nobody would reap the child where the server is the first process of a container.
"""
OUT_OF_MEMORY = 4
"""Exit code of a process whose file takes more memory than its limit."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What one file may take: memory (address space) and processor time of its process, characters and number of its
    texts, bytes of the translated file.
    """

    memory_bytes: int
    cpu_seconds: int
    characters: int
    texts: int
    result_bytes: int
