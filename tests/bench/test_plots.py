from pathlib import Path
from typing import Any

from bench.plots import plot

SIDE = {
    "sentences_per_second": 10.0,
    "slowest_sentences_per_second": 9.0,
    "fastest_sentences_per_second": 12.0,
}


def results(**parts: Any) -> dict[str, Any]:
    return {"batches": [], "arrivals": [], "http": [], **parts}


def test_what_was_measured_is_drawn_and_nothing_else(tmp_path: Path) -> None:
    batches = [
        {
            "precision": precision,
            "beam_size": 1,
            "batch_size": 8,
            "ratio": 1.2,
            "ours": {"name": "polyhead", **SIDE},
            "theirs": {"name": "ctranslate2", **SIDE},
        }
        for precision in ("fp32", "int8")
    ]
    loads = [
        {"precision": "int8", "side": side, "load": load, "requests_per_second": 3.0, "p99_milliseconds": 80.0}
        for side in ("polyhead", "ctranslate2 gathered", "ctranslate2")
        for load in ("8 clients", "4.0/s")
    ]
    assert plot(results(), tmp_path) == []
    written = plot(results(batches=batches, arrivals=loads), tmp_path)
    assert [path.name for path in written] == ["benchmark-batches.png", "benchmark-arrivals.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
