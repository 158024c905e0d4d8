"""An encoder-only bundle as the embedding engine's backend."""

from __future__ import annotations

import numpy as np

from export.bundle import Bundle
from service.engine.core.arrays import Floats, Ids
from service.runtime.graphs import open_session

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)


class OnnxEncoderBackend:
    """One precision of an embedding bundle on one device; see `engine.encode.embedding.EncoderBackend`."""

    def __init__(self, bundle: Bundle, precision: str, device: str = "cpu", num_threads: int = 1) -> None:
        config = bundle.config
        self.pad_id, self.vocab_size, self.width = config.pad_id, config.vocab_size, config.d_model
        graph = bundle.embed.graphs["encoder"]
        self.max_input_tokens = bundle.embed.max_input_tokens
        names = {spec.name for spec in bundle.graph(precision, graph).inputs}
        self._takes_types = "token_type_ids" in names
        self.num_token_types = config.num_token_types if self._takes_types else 0
        self._session = open_session(bundle.graph_path(precision, graph), device, num_threads, repeats_shapes=False)

    def encode(self, input_ids: Ids, lengths: Ids, token_type_ids: Ids | None, wants_tokens: bool) -> Floats:
        # A new array each time: its rows go to the callers as they are, without a copy.
        values: Floats = np.empty((*(input_ids.shape if wants_tokens else lengths.shape), self.width), _FLOAT32)
        inputs = {"input_ids": input_ids, "lengths": lengths}
        if self._takes_types:
            inputs["token_type_ids"] = np.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        inputs = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        binding = self._session.io_binding()
        for input_name, array in inputs.items():
            binding.bind_input(input_name, "cpu", 0, _INT64, array.shape, array.ctypes.data)
        output = "token_embeddings" if wants_tokens else "embeddings"
        binding.bind_output(output, "cpu", 0, _FLOAT32, values.shape, values.ctypes.data)
        self._session.run_with_iobinding(binding)
        return values
