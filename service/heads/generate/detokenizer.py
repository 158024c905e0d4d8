"""Text out of tokens, one at a time.

The `DecodeStream` of the tokenizers library does this too, but raises where a model breaks a character off: what it had
taken for a whole character is decoded anew when a stray byte follows. Bytes that were right stay right here.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from service.heads.generate.pieces import TokenPieces


class Detokenizer:
    """The text that follows a prompt, as its tokens come: each character once all its bytes are there.

    Bytes that cannot be a character become U+FFFD, as everywhere in Unicode's replacement of ill-formed sequences.
    """

    def __init__(self, pieces: TokenPieces, prompt: Sequence[int] = ()) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.previous = next((token_id for token_id in reversed(prompt) if pieces.is_plain(token_id)), None)
        """The last token that the next one's text may depend on."""

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        text = self._decoder.decode(self._pieces.piece(token_id, self.previous))
        if self._pieces.is_plain(token_id):
            self.previous = token_id
        return text

    def flush(self) -> str:
        """What is left when nothing more comes: U+FFFD for a character that was not completed, else ""."""
        return self._decoder.decode(b"", final=True)
