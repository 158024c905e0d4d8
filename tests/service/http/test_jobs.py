from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from service.errors import InvalidRequestError, NotFoundError, NotReadyError, SlowdownError
from service.http.jobs import Job, JobResult, JobState, JobStore
from service.http.keys import ApiKey
from service.http.records import RequestRecord
from service.http.usage import Account, UsageBook

RECORD = RequestRecord("r")
RESULT = JobResult("a.txt", b"abc")


def store(max_jobs: int = 4, max_bytes: int = 100, lifetime_seconds: float = 60) -> JobStore:
    return JobStore(max_jobs=max_jobs, max_bytes=max_bytes, lifetime_seconds=lifetime_seconds)


async def ended(job: Job) -> Job:
    assert job.task is not None
    await asyncio.wait({job.task})
    return job


def held(release: asyncio.Event, result: JobResult = RESULT) -> Callable[[Job], Awaitable[JobResult]]:
    async def work(job: Job) -> JobResult:
        job.begin()
        job.num_total = 10
        await release.wait()
        return result

    return work


async def fail(job: Job) -> JobResult:
    job.record.charge(5)
    raise InvalidRequestError("it is broken")


async def crash(job: Job) -> JobResult:
    raise ZeroDivisionError("a secret")


def test_a_result_is_given_once() -> None:
    async def run() -> None:
        jobs, release = store(), asyncio.Event()
        job = jobs.start(held(release), 10, RECORD)
        assert job.state is JobState.QUEUED
        await asyncio.sleep(0)
        assert jobs.get(job.id, job.key).state is JobState.RUNNING
        with pytest.raises(NotReadyError):
            jobs.take(job.id, job.key)
        release.set()
        assert (await ended(job)).state is JobState.DONE
        assert jobs.take(job.id, job.key) == RESULT
        with pytest.raises(NotFoundError):
            jobs.get(job.id, job.key)
        await jobs.close()

    asyncio.run(run())


def test_only_who_has_the_key_is_told() -> None:
    async def run() -> None:
        jobs = store()
        job, other = (jobs.start(held(asyncio.Event()), 1, RECORD) for _ in range(2))
        for key in ("", other.key, "\ud800"):
            with pytest.raises(NotFoundError):
                jobs.get(job.id, key)
        assert job.key not in repr(job)
        await jobs.close()

    asyncio.run(run())


def test_there_is_room_for_some_jobs_and_bytes() -> None:
    async def run() -> None:
        jobs, release = store(max_jobs=3, max_bytes=20), asyncio.Event()
        first = jobs.start(held(release, JobResult("a", b"x" * 15)), 10, RECORD)
        with pytest.raises(SlowdownError):
            jobs.start(held(release), 11, RECORD)
        second = jobs.start(held(release), 10, RECORD)
        release.set()
        assert (await ended(first)).message == "Slowdown: the room for jobs and their results is taken"
        assert (await ended(second)).state is JobState.DONE  # the first has left its room
        third = jobs.start(held(release), 1, RECORD)
        with pytest.raises(SlowdownError):
            jobs.start(held(release), 1, RECORD)
        jobs.take(second.id, second.key)
        jobs.start(held(release), 1, RECORD)
        await ended(third)
        await jobs.close()

    asyncio.run(run())


def test_jobs_and_results_have_an_age() -> None:
    async def run() -> None:
        jobs = store(lifetime_seconds=0.05)
        slow = jobs.start(held(asyncio.Event()), 1, RECORD)
        quick = jobs.start(fail, 1, RECORD)
        await ended(slow)
        assert (slow.state, slow.message) == (JobState.FAILED, "The request was not finished within 0.05 seconds")
        with pytest.raises(NotFoundError):
            jobs.get(quick.id, quick.key)
        jobs.get(slow.id, slow.key)
        await asyncio.sleep(0.1)
        with pytest.raises(NotFoundError):
            jobs.get(slow.id, slow.key)
        await jobs.close()

    asyncio.run(run())


def test_a_failure_is_told_and_a_fault_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        jobs, book = store(), UsageBook()
        record = RequestRecord("r", account=Account(ApiKey("shop"), book))
        failed = await ended(jobs.start(fail, 1, record))
        crashed = await ended(jobs.start(crash, 1, record))
        assert (failed.message, crashed.message) == ("it is broken", "Internal server error")
        assert (failed.record.num_characters, book.used("shop").characters) == (5, 0)
        with pytest.raises(NotFoundError, match="it is broken"):
            jobs.take(failed.id, failed.key)
        await jobs.close()

    asyncio.run(run())
    assert "ZeroDivisionError" in caplog.text


def test_the_time_that_is_left_is_told() -> None:
    async def run() -> None:
        jobs = store()
        job = jobs.start(held(asyncio.Event()), 1, RECORD)
        assert job.seconds_remaining is None
        await asyncio.sleep(0)
        assert job.seconds_remaining is None
        job.began -= 10
        job.num_done = 5
        assert jobs.get(job.id, job.key).seconds_remaining in (10, 11)
        await jobs.close()

    asyncio.run(run())


def test_the_end_of_the_server_ends_all_jobs() -> None:
    async def run() -> None:
        jobs = store()
        job = jobs.start(held(asyncio.Event()), 1, RECORD)
        await asyncio.sleep(0)
        await jobs.close()
        assert job.task is not None
        assert job.task.cancelled()
        with pytest.raises(NotFoundError):
            jobs.get(job.id, job.key)

    asyncio.run(run())
