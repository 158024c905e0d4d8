"""Folders of tiny random encoder-decoders as transformers writes them, with SentencePiece models trained in place."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from transformers import PreTrainedModel

from tests.model.importing.decoders import VOCAB_SIZE, make_byte_level_tokenizer
from tests.model.samples import PAIRS

SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
}
T5_SIZES = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2}
KINDS = {
    "marian": "MarianMTModel",
    "m2m_100": "M2M100ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}


def make_seq2seq(
    model_type: str, vocab_size: int, seed: int = 0, own_head: bool = False, **options: Any
) -> PreTrainedModel:
    """A random model whose weights are all drawn, the bias of the logits too."""
    sizes = T5_SIZES if model_type.endswith("t5") else SIZES
    if model_type == "marian":
        end = {"eos_token_id": 0, "pad_token_id": vocab_size - 1, "decoder_start_token_id": vocab_size - 1}
        end |= {"forced_eos_token_id": 0, "scale_embedding": True}
    elif model_type.endswith("t5"):
        end = {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    else:
        end = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    kind = getattr(transformers, KINDS[model_type])
    torch.manual_seed(seed)
    model: PreTrainedModel = kind(kind.config_class(**{"vocab_size": vocab_size, **sizes, **end, **options}))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.3)
        elif "embed_positions" not in name or model_type in ("bart", "mbart"):
            torch.nn.init.normal_(parameter, std=0.3)
    if own_head:
        head = torch.nn.Linear(model.config.d_model, vocab_size, bias=False)
        torch.nn.init.normal_(head.weight, std=0.5)
        model.lm_head = head
    if "final_logits_bias" in dict(model.named_buffers()):
        model.final_logits_bias.normal_(std=0.5)  # type: ignore[operator]
    model.train(mode=False)
    return model


@functools.cache
def sentencepiece_model(kind: str = "unigram", side: str = "both", vocab_size: int = 90, **options: Any) -> bytes:
    """A model of our twenty pairs: of the English side, the German one, or both."""
    texts = {"source": [s for s, _ in PAIRS], "target": [t for _, t in PAIRS], "both": [t for p in PAIRS for t in p]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts").write_text("\n".join(texts[side] * 3), "utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=f"{folder}/texts",
            model_prefix=f"{folder}/model",
            model_type=kind,
            vocab_size=vocab_size,
            character_coverage=1.0,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
        return (Path(folder) / "model.model").read_bytes()


def pieces_of(model: bytes) -> list[str]:
    """The pieces in their order."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.IdToPiece(index) for index in range(processor.GetPieceSize())]


def write_marian(
    folder: Path, own_vocabularies: bool = False, targets: Sequence[str] = (), **options: Any
) -> PreTrainedModel:
    """A Marian folder: source.spm, target.spm and vocab.json, and target_vocab.json with `own_vocabularies`."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabularies = []
    for side in ("source", "target"):
        model = sentencepiece_model(side=side)
        (folder / f"{side}.spm").write_bytes(model)
        vocabularies.append([piece for piece in pieces_of(model) if piece not in ("<unk>", "<s>", "</s>")])
    codes = [f">>{target}<<" for target in targets]
    first, second = ([*["</s>", "<unk>"], *codes, *vocabulary[5:]] for vocabulary in vocabularies)  # some have no id
    if not own_vocabularies:
        first = list(dict.fromkeys([*first, *second]))
    sizes = []
    for name, vocabulary in (("vocab.json", first), ("target_vocab.json", second))[: 1 + own_vocabularies]:
        ids = {piece: index for index, piece in enumerate([*vocabulary, "<pad>"])}
        (folder / name).write_text(json.dumps(ids), "utf-8")
        sizes.append(len(ids))
    if own_vocabularies:
        options |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": sizes[1]}
        options |= {"decoder_start_token_id": sizes[1] - 1}
    made = make_seq2seq("marian", sizes[0], **options)
    pad = sizes[-1] - 1
    made.get_parameter("model.encoder.embed_tokens.weight").data[sizes[0] - 1] = 0  # as the converted ones have it
    made.generation_config.bad_words_ids = [[pad]]
    made.generation_config.renormalize_logits = True
    made.generation_config.max_length = 30
    made.save_pretrained(folder)
    write_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})
    return made


def write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values), "utf-8")


def write_m2m100(folder: Path, nllb: bool = False, **options: Any) -> PreTrainedModel:
    """A folder of M2M100 (vocab.json and a SentencePiece model) or NLLB (the model, and the codes beside it)."""
    folder.mkdir(parents=True, exist_ok=True)
    model = sentencepiece_model("bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    pieces = pieces_of(model)[3:]
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    if nllb:
        codes = ["eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant"]
        write_json(folder / "special_tokens_map.json", {"additional_special_tokens": codes})
        size = len(first) + len(pieces) + len(codes) + 1
    else:
        ids = {piece: index for index, piece in enumerate([*first, *pieces[7:]])}  # some have no id
        write_json(folder / "vocab.json", ids)
        size = len(ids) + 100 + 8
    made = make_seq2seq("m2m_100", size, **options)
    made.generation_config.max_length = 30
    made.save_pretrained(folder)
    return made


def write_mbart(folder: Path, languages: int = 25, **options: Any) -> PreTrainedModel:
    """A folder of mBART-25 or mBART-50."""
    folder.mkdir(parents=True, exist_ok=True)
    model = sentencepiece_model()
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    made = make_seq2seq("mbart", len(pieces_of(model)) + 1 + languages + 1, **options)
    made.save_pretrained(folder)
    return made


def write_bart(folder: Path, **options: Any) -> PreTrainedModel:
    """A folder of BART with a byte-level tokenizer."""
    model = make_seq2seq("bart", VOCAB_SIZE, **options)
    model.save_pretrained(folder)
    make_byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    return model


def write_t5(folder: Path, model_type: str = "t5", targets: Sequence[str] = (), **options: Any) -> PreTrainedModel:
    """A folder of the T5 family: spiece.model, whose pieces for targets are MADLAD's."""
    folder.mkdir(parents=True, exist_ok=True)
    codes = ",".join(f"<2{target}>" for target in targets)
    ends = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    model = sentencepiece_model(**ends, **({"user_defined_symbols": codes} if codes else {}))
    (folder / "spiece.model").write_bytes(model)
    made = make_seq2seq(model_type, len(pieces_of(model)) + 6, **options)  # sizes are rounded up
    made.save_pretrained(folder)
    return made
