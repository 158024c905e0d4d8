from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from model.checkpoint import Checkpoint, load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
PATIENCE_SECONDS = 300
"""For a machine that does much else; nothing waits so long when all is well."""

CONFIG = """
name = "numbers"
max_steps = 300
max_batch_tokens = 1024
label_smoothing = 0.0
average_decay = 0.9
evaluate_every_steps = 300
autocast = "off"

[model]
architecture = "encoder_decoder"
d_model = 64
d_ff = 128
num_heads = 2
num_encoder_layers = 2
num_decoder_layers = 1
max_seq_len = 64
dropout = 0.0

[tokenizer]
vocab_size = 320

[optimizer]
kind = "muon"
learning_rate = 3e-3
schedule = "constant"
warmup_steps = 40
cooldown_steps = 150

[data]
languages = ["en", "de"]

[[data.train]]
path = "train.tsv"

[[data.dev]]
path = "dev.tsv"
"""


def number_words(seed: int, count: int, longest: int = 5) -> list[tuple[str, str]]:
    """Pairs of sentences in a language of ten words, none of them twice in a sentence."""
    chance = random.Random(seed)
    numbers = [chance.sample(range(10), chance.randint(1, longest)) for _ in range(count)]
    return [(" ".join(ENGLISH[n] for n in words), " ".join(GERMAN[n] for n in words)) for words in numbers]


def run_module(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Workshop:
    """What training and export have left."""

    checkpoint: Checkpoint
    bundles: Path


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A model that has learned its little language, trained and exported by the command lines that people use."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "config.toml").write_text(CONFIG)
    for name, seed, count in (("train", 0, 3000), ("dev", 1, 20)):
        lines = ["\t".join(pair) for pair in number_words(seed, count)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = folder / "run"
    run_module("model", "train", folder / "config.toml", "--data", folder, "--out", run, "--threads", "1")
    run_module("export", run / "final", folder / "bundles" / "numbers", "--precision", "fp32", "--precision", "int8")
    return Workshop(load_checkpoint(run / "final"), folder / "bundles")


@dataclass
class Server:
    """`python -m service` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, limits=limits)

    def wait(self) -> None:
        """Until it answers."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.client.get("/languages")
            except httpx.TransportError:
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < end
                time.sleep(0.1)
            else:
                return

    def translate(self, q: str | list[str], source: str = "en", target: str = "de", **fields: float) -> httpx.Response:
        return self.client.post("/translate", json={"q": q, "source": source, "target": target} | fields)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; `name` may go on with labels."""
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def wait_for_rows(self, *, in_use: bool) -> None:
        """Until rows of the cache are in use, or until none is and nobody waits for one."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (self.metric("polyhead_active_rows{") + self.metric("polyhead_waiting_requests{") > 0) != in_use:
            assert time.monotonic() < end
            time.sleep(0.01)


@contextmanager
def serving(bundles: Path, **settings: object) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYHEAD_")}
    environment |= {f"POLYHEAD_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "service", "--bundles", str(bundles), "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, text=True) as process:
        server = Server(process, f"http://127.0.0.1:{port}")
        try:
            server.wait()
            yield server
        finally:
            server.client.close()
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def server(workshop: Workshop) -> Iterator[Server]:
    """In float32, which equals the oracle, with two loops."""
    with serving(
        workshop.bundles, precision="fp32", loops=2, request_timeout_seconds=PATIENCE_SECONDS, log_level="warning"
    ) as served:
        yield served
