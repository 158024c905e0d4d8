"""How tokens get from the engine's thread to their readers on asyncio's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from service.engine.decode.types import DecodingRequest, PromptToken, Result, TokenEvent

Delivery = tuple["TokenStream", TokenEvent | BaseException | None]
"""What a stream gets: a token, what went wrong, or None for an end without a token."""


class EventLoopInbox:
    """The way into one event loop, which is woken once for all that happened since it last looked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deliveries: list[Delivery] = []
        self._lock = threading.Lock()

    def post(self, deliveries: Iterable[Delivery]) -> None:
        """Hand over from any thread; what nobody can read any more, because the event loop is closed, is dropped."""
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
    """The tokens of one request, as they come: an asynchronous iterator for one reader.

    It ends after the event with a finish reason. Reading raises DeadlineError, InvalidOutputError or
    ModelUnavailableError where the request failed, after the tokens that were there before. A reader that stops early
    calls `aclose`. What is not read yet is kept, at most `max_new_tokens` events, and delays nobody.
    """

    def __init__(self, request: DecodingRequest, inbox: EventLoopInbox) -> None:
        self.request, self.inbox = request, inbox
        self.queue_seconds: float | None = None
        """How long the request waited to be begun, from the first event on."""
        self.prompt_log_probs: tuple[PromptToken, ...] | None = None
        """Each token of the prompt, from the first event on, where the request asked for them."""
        self._events: deque[TokenEvent] = deque()
        self._is_ended = False
        self._failure: BaseException | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._future: Future[Result] | None = None

    def attach(self, future: Future[Result]) -> None:
        """Let the stream fail with the engine's future for it, and withdraw it."""
        self._future = future
        future.add_done_callback(self._on_done)

    def _on_done(self, future: Future[Result]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self.inbox.post([(self, error)])

    def receive(self, content: TokenEvent | BaseException | None) -> None:
        """Take what the inbox brings, on the event loop."""
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
        """Tell the engine, from any thread, that nobody reads."""
        if self._future is not None:
            self._future.cancel()
