"""A bundle as the engine's backend."""

from __future__ import annotations

from export.bundle import Bundle
from service.runtime.graphs import DecoderGraphs
from service.runtime.memory import Memory
from service.runtime.table import OnnxRowTable


class OnnxBackend:
    """An encoder-decoder bundle in one precision on one device; see `service.engine.backend.Backend`."""

    def __init__(
        self, bundle: Bundle, precision: str, device: str = "cpu", num_threads: int = 1, memory: Memory | None = None
    ) -> None:
        config = bundle.config
        self.bos_id, self.eos_id, self.pad_id = config.bos_id, config.eos_id, config.pad_id
        self._graphs = DecoderGraphs(bundle, precision, device, num_threads, memory)
        self.num_candidates = self._graphs.num_candidates
        self.max_source_tokens = self._graphs.max_source_tokens
        self.max_target_tokens = self._graphs.max_target_tokens

    def new_table(self, max_rows: int, beam_size: int) -> OnnxRowTable:
        return OnnxRowTable(self._graphs, max_rows, beam_size)
