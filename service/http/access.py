"""Access: rate limits and API keys."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from service.engine.core.flow import begin_flow
from service.errors import ApiKeyRequiredError, InvalidApiKeyError, MissingRightError
from service.http.keys import NO_KEY, ApiKey, KeyRing, Right, load_keys
from service.http.rate_limit import RateLimiter
from service.http.records import RequestRecord
from service.http.usage import Account, UsageBook
from service.settings import Settings

KEY_FIELD = "api_key"
_SCHEMES = (b"bearer", b"deepl-auth-key")


def open_access(settings: Settings) -> Access:
    """As the settings and the files have it that they name; StartupError says what is wrong with which."""
    return Access(load_keys(settings), UsageBook(settings.usage_file), settings.requests_per_minute)


class Access:
    """The keys, what they have used, and the rates of clients and keys.

    `requests_per_minute` holds for clients whose key has no rate of its own; 0 is none.
    """

    def __init__(self, keys: KeyRing, book: UsageBook, requests_per_minute: int) -> None:
        self.keys = keys
        self.book = book
        self._limiter = RateLimiter(requests_per_minute)
        self._limiters = {
            key.name: RateLimiter(key.requests_per_minute) for key in keys.named if key.requests_per_minute is not None
        }

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Of every key, with what it has used."""
        return tuple(Account(key, self.book) for key in self.keys.named)

    def admit(self, request: Request, record: RequestRecord, right: Right = "use") -> bool:
        """Count the request and check its key, before anything of its body is read; the record gets the account.

        The key is that of the Authorization header, else that of the query string. False where a key is needed and
        neither has one, so that only the body can. Raises SlowdownError, InvalidApiKeyError or MissingRightError.

        Engines then work for its client, in fair order with others: the key, or without keys the address.
        """
        client = request.client.host if request.client else ""
        given = b"" if self.keys.is_open else _header_key(request) or _query_key(request)
        key = self.keys.find(given) if given else None
        if key is None or key.name not in self._limiters:
            # Before a wrong key is refused, so that requests with wrong keys count too.
            self._limiter.admit(client)
        if self.keys.is_open:
            begin_flow(client)
            self._open_account(NO_KEY, record, right)
            return True
        if not given:
            return False
        self._open_account(key, record, right)
        begin_flow(_client(key, given))
        return True

    def admit_key(self, given: object, record: RequestRecord, right: Right = "use") -> None:
        """The same for a key of the body. ApiKeyRequiredError where there is none."""
        if not given:
            raise ApiKeyRequiredError
        key = self.keys.find(str(given).encode())
        self._open_account(key, record, right)
        begin_flow(_client(key, str(given).encode()))

    def _open_account(self, key: ApiKey | None, record: RequestRecord, right: Right) -> None:
        if key is None:
            raise InvalidApiKeyError
        if key.name in self._limiters:
            self._limiters[key.name].admit(key.name)
        if right not in key.rights:
            raise MissingRightError(key.name, right)
        self.book.count_request(key.name)
        record.account = Account(key, self.book)


def _client(key: ApiKey | None, given: bytes) -> str:
    """Whose turn it is with this key: keys without a name count as one account, and not as one client."""
    return given.decode("latin-1") if key is None or key is NO_KEY else key.name


def _header_key(request: Request) -> bytes:
    value = next((value for name, value in request.scope["headers"] if name == b"authorization"), b"")
    scheme, _, token = value.partition(b" ")
    return bytes(token.strip()) if scheme.lower() in _SCHEMES else b""


def _query_key(request: Request) -> bytes:
    query = request.scope["query_string"]
    if KEY_FIELD.encode() not in query:
        return b""
    return next(iter(parse_qs(query.decode("latin-1")).get(KEY_FIELD, ())), "").encode()
