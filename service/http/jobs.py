"""Work that outlives its request: begun, asked for by its id and key, and its result fetched, once.

Jobs are kept in memory, within bounds of number, bytes and age, and none outlives the server.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from service.errors import NotFoundError, NotReadyError, RequestTimeoutError, SlowdownError
from service.http.error_handlers import message_for_clients
from service.http.records import RequestRecord

logger = logging.getLogger(__name__)


class JobState(Enum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobResult:
    """A file: its name for the client, and its bytes."""

    name: str
    data: bytes


@dataclass(slots=True, eq=False)
class Job:
    """One job. `id` names it; only who has the `key` too is told of it.

    `num_done` of `num_total` is what the work itself reports, in a unit of its own; 0 of 0 until it knows. `record` has
    what it has cost.
    """

    record: RequestRecord
    num_bytes: int
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    state: JobState = JobState.QUEUED
    num_done: int = 0
    num_total: int = 0
    message: str = ""
    result: JobResult | None = field(default=None, repr=False)
    began: float = 0.0
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def begin(self) -> None:
        """Its turn has come."""
        self.state = JobState.RUNNING
        self.began = time.monotonic()

    @property
    def seconds_remaining(self) -> int | None:
        """How long it will take at the speed so far; None where that is not known yet."""
        if self.state is not JobState.RUNNING or not self.num_done:
            return None
        elapsed = time.monotonic() - self.began
        return math.ceil(elapsed * (self.num_total - self.num_done) / self.num_done)


Work = Callable[[Job], Awaitable[JobResult]]


class JobStore:
    """Holds at most `max_jobs` jobs with `max_bytes` together: what they were given, then what came of it.

    A job has `lifetime_seconds` to end, and its result as long to be fetched. For use on one event loop.
    """

    def __init__(self, *, max_jobs: int, max_bytes: int, lifetime_seconds: float) -> None:
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._lifetime_seconds = lifetime_seconds
        self._jobs: dict[str, Job] = {}

    def start(self, work: Work, num_bytes: int, record: RequestRecord) -> Job:
        """Begin `work`, which was given `num_bytes`; what it costs is added to a copy of `record`'s account.

        SlowdownError where there is no room for another job.
        """
        if len(self._jobs) >= self._max_jobs:
            raise SlowdownError(f"{self._max_jobs} jobs are kept already", retry_after_seconds=5.0)
        self._check_room(num_bytes)
        job = Job(RequestRecord(record.request_id, account=record.account), num_bytes)
        self._jobs[job.id] = job
        job.task = asyncio.get_running_loop().create_task(self._run(job, work))
        self._expire_later(job)
        return job

    def get(self, job_id: str, key: str) -> Job:
        """The job; NotFoundError where there is none, or none any more, or its key is another."""
        job = self._jobs.get(job_id)
        if job is None or not hmac.compare_digest(job.key.encode(), key.encode(errors="replace")):
            raise NotFoundError(
                "There is no such job, or it has expired: a result can be fetched once, for "
                f"{self._lifetime_seconds:g} seconds"
            )
        return job

    def take(self, job_id: str, key: str) -> JobResult:
        """The result, which is then forgotten with its job. Raises as `get`; NotReadyError while it is being made, and
        NotFoundError with the reason where there will be none.
        """
        job = self.get(job_id, key)
        if job.state is JobState.FAILED:
            raise NotFoundError(f"The job has failed: {job.message}")
        if job.result is None:
            raise NotReadyError("The result is not ready yet")
        self._forget(job)
        return job.result

    async def close(self) -> None:
        """Stop all work, and forget all jobs."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for job in list(self._jobs.values()):
            self._forget(job)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            result = await work(job)
            self._check_room(len(result.data) - job.num_bytes)
        except Exception as error:  # noqa: BLE001  # told to the client, and logged where it is our fault
            self._fail(job, error)
        else:
            job.result, job.num_bytes, job.state = result, len(result.data), JobState.DONE
        self._expire_later(job)

    def _fail(self, job: Job, error: Exception) -> None:
        job.record.refund()
        job.message, job.num_bytes, job.state = message_for_clients(error), 0, JobState.FAILED

    def _check_room(self, num_bytes: int) -> None:
        used = sum(job.num_bytes for job in self._jobs.values())
        if used + num_bytes > self._max_bytes:
            raise SlowdownError("the room for jobs and their results is taken", retry_after_seconds=5.0)

    def _expire_later(self, job: Job) -> None:
        if job.timer is not None:
            job.timer.cancel()
        if job.id in self._jobs:
            job.timer = asyncio.get_running_loop().call_later(self._lifetime_seconds, self._expire, job)

    def _expire(self, job: Job) -> None:
        if job.state in (JobState.DONE, JobState.FAILED):
            self._forget(job)
            return
        assert job.task is not None  # start makes it
        job.task.cancel()
        self._fail(job, RequestTimeoutError(self._lifetime_seconds))
        self._expire_later(job)

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        if job.timer is not None:
            job.timer.cancel()
