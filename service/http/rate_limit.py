"""How many requests one client may make in a minute, in the memory of this process."""

from __future__ import annotations

import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from service.errors import SlowdownError


class RateLimiter:
    """A moving window for each client; `requests_per_minute` 0 admits everybody."""

    def __init__(self, requests_per_minute: int) -> None:
        self._item = RateLimitItemPerMinute(requests_per_minute) if requests_per_minute else None
        self._limiter = MovingWindowRateLimiter(MemoryStorage()) if requests_per_minute else None

    def admit(self, client: str) -> None:
        """Count a request of `client`; SlowdownError when its minute is full."""
        if self._item is None or self._limiter is None or self._limiter.hit(self._item, client):
            return
        window = self._limiter.get_window_stats(self._item, client)
        raise SlowdownError(f"{self._item}", retry_after_seconds=max(1.0, window.reset_time - time.time()))
