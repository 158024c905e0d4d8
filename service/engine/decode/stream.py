"""Tokens from an engine's thread to their readers on asyncio's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from service.engine.decode.types import DecodingRequest, PromptToken, Result, TokenEvent

Delivery = tuple["TokenStream", TokenEvent | BaseException | None]
"""What a stream receives: a token, an error, or None for an end without a token."""


class EventLoopInbox:
    """A queue into one event loop, which is woken once for all that was posted since it last ran."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deliveries: list[Delivery] = []
        self._lock = threading.Lock()

    def post(self, deliveries: Iterable[Delivery]) -> None:
        """Post from any thread; where the event loop is closed, deliveries are dropped and their requests cancelled."""
        with self._lock:
            is_awake = bool(self._deliveries)
            self._deliveries.extend(deliveries)
            if is_awake or not self._deliveries:
                return
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            with self._lock:
                unread, self._deliveries = self._deliveries, []
            for stream in {delivery[0] for delivery in unread}:
                stream.withdraw()

    def _deliver(self) -> None:
        with self._lock:
            deliveries, self._deliveries = self._deliveries, []
        for stream, content in deliveries:
            stream.receive(content)


class TokenStream:
    """The tokens of one request as they are generated: an asynchronous iterator for one reader.

    It ends after the event with a finish reason. Reading raises DeadlineError, InvalidOutputError or
    ModelUnavailableError where the request failed, after the tokens generated before. A reader that stops early calls
    `aclose`. Unread events, at most `max_new_tokens`, are buffered, so that a slow reader delays no other request.
    """

    def __init__(self, request: DecodingRequest, inbox: EventLoopInbox) -> None:
        self.request, self.inbox = request, inbox
        self.queue_seconds: float | None = None
        """How long the request was queued, set before the first event."""
        self.prompt_log_probs: tuple[PromptToken, ...] | None = None
        """The scores of the prompt, set before the first event, where the request asked for them."""
        self._events: deque[TokenEvent] = deque()
        self._is_ended = False
        self._failure: BaseException | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._future: Future[Result] | None = None

    def attach(self, future: Future[Result]) -> None:
        """Tie the stream to its request's future: errors of that are raised to the reader, and `aclose` cancels it."""
        self._future = future
        future.add_done_callback(self._on_done)

    def _on_done(self, future: Future[Result]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self.inbox.post([(self, error)])

    def receive(self, content: TokenEvent | BaseException | None) -> None:
        """Take a delivery of the inbox, on the event loop."""
        if isinstance(content, TokenEvent):
            self._events.append(content)
            self._is_ended = content.finish_reason is not None
        else:
            self._failure, self._is_ended = content, True
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> TokenEvent:
        while not self._events:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._is_ended:
                raise StopAsyncIteration
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._events.popleft()

    async def aclose(self) -> None:
        """Stop: the rows are free at the engine's next step. Does nothing where the stream has ended."""
        self._is_ended = True
        self._events.clear()
        self.withdraw()
        self._wake()

    def withdraw(self) -> None:
        """Cancel the request, from any thread."""
        if self._future is not None:
            self._future.cancel()
