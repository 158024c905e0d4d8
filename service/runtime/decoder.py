"""A decoder-only bundle as the generation engine's backend."""

from __future__ import annotations

from export.bundle import Bundle
from service.runtime.decoder_graph import DecoderGraph
from service.runtime.decoder_table import OnnxGenerationTable
from service.runtime.memory import Memory


class OnnxGenerationBackend:
    """A decoder bundle in one precision on one device; see `service.engine.generation.backend.GenerationBackend`."""

    def __init__(
        self, bundle: Bundle, precision: str, device: str = "cpu", num_threads: int = 1, memory: Memory | None = None
    ) -> None:
        config = bundle.config
        self._graph = DecoderGraph(bundle, precision, device, num_threads, memory)
        generation = bundle.manifest.generation
        self.eos_ids: tuple[int, ...] = generation.eos_token_ids if generation else (config.eos_id,)
        self.pad_id, self.vocab_size = config.pad_id, config.vocab_size
        self.num_candidates = bundle.manifest.decoding.num_candidates
        self.max_total_tokens = self._graph.max_total_tokens

    def new_table(self, max_rows: int) -> OnnxGenerationTable:
        return OnnxGenerationTable(self._graph, max_rows)
