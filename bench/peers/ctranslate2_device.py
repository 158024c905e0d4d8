"""CTranslate2 on a device, and the cuBLAS that its wheel loads by name.

    export LD_LIBRARY_PATH=$(python -m bench.peers.ctranslate2_device bench/.cache/cublas):$LD_LIBRARY_PATH

The wheel carries its kernels and loads libcublas.so.12. Where an environment has that of CUDA 13 alone, the name is
linked to it: whether that computes rightly is seen in its outputs, which are compared with ours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from bench.peers.ctranslate2_converter import convert
from bench.side import BenchError
from model.transformer import Transformer

COMPUTE_TYPES = {"fp16": "float16", "fp32": "float32"}
_CUBLAS, _WANTED = "libcublas.so.13", "libcublas.so.12"


class Ctranslate2Translator:
    """Greedy or beam search over `sources` (B,S), until as many tokens as are asked for; ends are not looked for."""

    def __init__(
        self, model: Transformer, folder: Path, precision: str, sources: NDArray[np.int64], beam_size: int, device: str
    ) -> None:
        if not (folder / "model.bin").is_file():
            convert(model, folder)
        self._beam_size = beam_size
        self._sources = [[str(token_id) for token_id in row] for row in sources.tolist()]
        self._translator = ctranslate2.Translator(str(folder), device=device, compute_type=COMPUTE_TYPES[precision])

    def __call__(self, num_new_tokens: int) -> list[list[int]]:
        """So many tokens of the best output of each source."""
        results = self._translator.translate_batch(
            self._sources,
            beam_size=self._beam_size,
            length_penalty=1.0,
            min_decoding_length=num_new_tokens,
            max_decoding_length=num_new_tokens,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]


def link_cublas(folder: Path, places: Sequence[Path]) -> Path:
    """A folder in which CTranslate2 finds its cuBLAS: one of `places`, or `folder` with links to that of CUDA 13.

    Raises BenchError where there is neither.
    """
    for place in places:
        for found in sorted(place.glob(f"**/{_WANTED}")):
            return found.parent
    for place in places:
        for found in sorted(place.glob(f"**/{_CUBLAS}")):
            folder.mkdir(parents=True, exist_ok=True)
            for library in found.parent.glob("libcublas*.so.13"):
                _link(folder / library.name, library)
            _link(folder / _WANTED, found)
            return folder
    raise BenchError(f"neither {_WANTED} nor {_CUBLAS} in {', '.join(map(str, places))}: install nvidia-cublas")


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target.resolve())


if __name__ == "__main__":
    packages = Path(ctranslate2.__file__).parents[1] / "nvidia"
    print(link_cublas(Path(sys.argv[1]).resolve(), [packages, *sorted(Path("/usr/local").glob("cuda*"))]))
