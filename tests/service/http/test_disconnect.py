from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest
from starlette.requests import Request
from starlette.types import Message

from service.errors import ClientDisconnectedError, RequestTimeoutError
from service.http.disconnect import run_for_client
from tests.service.conftest import Running, Serve, wait_until

BODY = json.dumps({"q": ["One.", "Two."], "source": "en", "target": "de"}).encode()


def send_request(served: Running, body: bytes, *, length: int | None = None) -> socket.socket:
    port = int(served.url.rsplit(":", 1)[1])
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    head = "POST /translate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body)
    return connection


def test_a_client_that_leaves_stops_the_work(serve: Serve) -> None:
    served = serve()
    served.engine.hold()
    connection = send_request(served, BODY)
    wait_until(lambda: served.engine.num_running == 2)
    connection.close()
    wait_until(lambda: served.engine.num_cancelled == 2)
    wait_until(lambda: 'route="/translate",status="499"' in served.client.get("/metrics").text)
    assert served.engine.num_running == 0


def test_the_work_of_others_goes_on(serve: Serve) -> None:
    served = serve()
    served.engine.hold()
    leaving, staying = send_request(served, BODY), send_request(served, BODY)
    wait_until(lambda: served.engine.num_running == 4)
    leaving.close()
    wait_until(lambda: served.engine.num_cancelled == 2)
    served.engine.release()
    answer = b"".join(iter(lambda: staying.recv(4096), b""))
    staying.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'["ONE.","TWO."]' in answer


def test_a_client_that_leaves_within_its_body(serve: Serve) -> None:
    served = serve()
    send_request(served, BODY[:10], length=len(BODY)).close()
    wait_until(lambda: 'route="/translate",status="499"' in served.client.get("/metrics").text)
    assert not served.engine.requests


def test_a_client_that_sends_too_slowly(serve: Serve) -> None:
    served = serve(request_timeout_seconds=0.3)
    connection = send_request(served, BODY[:10], length=len(BODY))
    assert connection.recv(4096).startswith(b"HTTP/1.1 504")
    connection.close()


def request_of(*messages: Message) -> Request:
    waiting = list(messages)

    async def receive() -> Message:
        if waiting:
            return waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


LEAVES: Message = {"type": "http.disconnect"}


def test_the_result_of_the_work_is_returned() -> None:
    async def work() -> int:
        return 7

    async def main() -> int:
        return await run_for_client(request_of(), work(), timeout_seconds=1, started=time.monotonic())

    assert asyncio.run(main()) == 7


def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> int:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(run_for_client(request_of(), work(), timeout_seconds=1, started=time.monotonic()))


@pytest.mark.parametrize(
    ("messages", "timeout_seconds", "error"),
    [([LEAVES], 1.0, ClientDisconnectedError), ([], 0.05, RequestTimeoutError)],
    ids=["client leaves", "time is over"],
)
def test_the_work_has_ended_when_the_error_is_raised(
    messages: list[Message], timeout_seconds: float, error: type[Exception]
) -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)  # cleaning up takes its time
            ended.append(True)

    async def main() -> None:
        with pytest.raises(error):
            await run_for_client(
                request_of(*messages), work(), timeout_seconds=timeout_seconds, started=time.monotonic()
            )
        assert ended
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_short_work_ends_before_anybody_listens() -> None:
    async def work() -> int:
        await asyncio.sleep(0.01)
        return len(asyncio.all_tasks())

    async def main() -> int:
        return await run_for_client(request_of(LEAVES), work(), timeout_seconds=9, started=time.monotonic())

    assert asyncio.run(main()) == 1


def test_a_task_that_was_stopped_goes_on_as_if_it_had_not_been_cancelled() -> None:
    async def main() -> None:
        with pytest.raises(RequestTimeoutError):
            await run_for_client(request_of(), asyncio.sleep(9), timeout_seconds=0.01, started=time.monotonic())
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_work_that_fails_as_it_is_stopped_raises_its_own_error() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(9)
        finally:
            raise KeyError("cleaning up failed")

    with pytest.raises(KeyError, match="cleaning up failed"):
        asyncio.run(run_for_client(request_of(), work(), timeout_seconds=0.01, started=time.monotonic()))


@pytest.mark.parametrize(
    ("cleaning_seconds", "timeout_seconds"),
    [
        pytest.param(0.0, 9.0, id="long-before-the-hour"),
        pytest.param(0.1, 0.05, id="the-hour-comes-in-its-cleaning-up"),
    ],
)
def test_cancelling_the_handler_cancels_the_work(cleaning_seconds: float, timeout_seconds: float) -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(cleaning_seconds)
            ended.append(True)

    async def main() -> None:
        handler = asyncio.ensure_future(
            run_for_client(request_of(), work(), timeout_seconds=timeout_seconds, started=time.monotonic())
        )
        await asyncio.sleep(0.01)
        handler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handler
        assert ended
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
