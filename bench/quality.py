"""BLEU and chrF of a bundle as it is served: the engine over ONNX Runtime, in each precision, with sacrebleu.

    python -m bench.quality bundles/en-de DATA/dev/tatoeba-dev.tsv.xz --precision int8 --beam-size 4

`python -m model evaluate` scores a checkpoint in PyTorch; this scores what a client gets, quantisation included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.ours import decoding_limits, server_settings
from export.bundle import Bundle, BundleError, load_bundle
from model.data import DataError, read_pairs
from model.evaluation import score
from model.tokenizer import Tokenizer
from model.translation_format import BoundFormat
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.types import DecodingOptions, DecodingRequest
from service.runtime.decoder import OnnxDecoderBackend


def translate(
    engine: DecodingEngine,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    bound: BoundFormat,
    beam_size: int,
    length_penalty: float,
) -> list[str]:
    """Translate texts as single sentences; what is beyond the model's positions cannot be read, and is cut off."""
    limit, longest_output = engine.backend.max_source_tokens, engine.backend.max_total_tokens
    futures = []
    for ids in tokenizer.encode_batch([bound.text_prefix + text for text in texts]):
        source = bound.source_ids(ids[: limit - bound.num_source_tokens])
        options = DecodingOptions(
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_new_tokens=min(longest_output, max(32, 3 * len(source))),
        )
        request = DecodingRequest(source_ids=source, prompt_ids=bound.target_ids, options=options)
        futures.append(engine.submit(request))
    return [tokenizer.decode(future.result().best.token_ids) for future in futures]


def evaluate(bundle: Bundle, flags: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each precision, file and direction, printed as it comes."""
    if bundle.manifest.heads.translate is None:
        raise BundleError(f"bundle {bundle.path} does not translate")
    print(f"{'set':<16}{'pairs':>6}  {'direction':<10}{'precision':<10}{'BLEU':>7}{'chrF':>7}{'sentences/s':>13}")
    rows = []
    for precision in flags.precision or [name for name in bundle.precisions if name != "fp16"]:
        backend = OnnxDecoderBackend(bundle, precision)
        limits = decoding_limits(server_settings(), bundle, backend, "cpu")
        engine = DecodingEngine(backend, limits, num_loops=flags.loops)
        engine.start()
        for path in flags.pairs:
            for direction in bundle.translate.languages.directions:
                row = _score(bundle, engine, path, direction, flags)
                rows.append({"precision": precision, **row})
                print(
                    f"{row['set']:<16}{row['pairs']:>6}  {row['direction']:<10}{precision:<10}{row['bleu']:>7.2f}"
                    f"{row['chrf']:>7.2f}{row['sentences_per_second']:>13.1f}",
                    flush=True,
                )
        engine.close()
    return rows


def _score(
    bundle: Bundle, engine: DecodingEngine, path: Path, direction: tuple[str, str], flags: argparse.Namespace
) -> dict[str, Any]:
    column = bundle.translate.languages.codes.index(direction[0])
    pairs, tokenizer = read_pairs(path).pairs, Tokenizer.load(bundle.tokenizer_path)
    start = time.perf_counter()
    texts = [pair[column] for pair in pairs]
    bound = bundle.translate.format.bind(*direction, tokenizer, tokenizer)
    hypotheses = translate(engine, tokenizer, texts, bound, flags.beam_size, flags.length_penalty)
    seconds = time.perf_counter() - start
    result = score(hypotheses, [pair[1 - column] for pair in pairs])
    return {
        "set": path.name.split(".")[0],
        "direction": "-".join(direction),
        "beam_size": flags.beam_size,
        "length_penalty": flags.length_penalty,
        "pairs": len(pairs),
        "bleu": round(result.bleu, 2),
        "chrf": round(result.chrf, 2),
        "sentences_per_second": round(len(pairs) / seconds, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Score the bundle that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description="BLEU and chrF of a bundle as served.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pairs", type=Path, nargs="+", metavar="PAIRS.tsv", help="sentence pairs, plain, .xz or .gz")
    parser.add_argument("--precision", action="append", help="may be repeated (default: all that a CPU runs)")
    parser.add_argument("--beam-size", type=int, default=4, help="1 is greedy (default: %(default)s)")
    parser.add_argument(
        "--length-penalty", type=float, default=1.0, help="exponent of the length (default: %(default)s)"
    )
    parser.add_argument("--loops", type=int, default=2, help="decoding loops of one thread each (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    flags = parser.parse_args(arguments)
    try:
        rows = evaluate(load_bundle(flags.bundle), flags)
    except (BundleError, DataError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if flags.json:
        flags.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
