"""The families that can be imported, by the `model_type` of their config.json: a new one is a file and a line here."""

from __future__ import annotations

from model.importing import bart, bert, distilbert, gpt2, llama, m2m100, marian, mistral, qwen, roberta, t5
from model.importing.family import Family

FAMILIES: dict[str, Family] = {
    "bert": bert.FAMILY,
    "distilbert": distilbert.FAMILY,
    "roberta": roberta.FAMILY,
    "xlm-roberta": roberta.FAMILY,
    "camembert": roberta.FAMILY,
    "gpt2": gpt2.FAMILY,
    "llama": llama.FAMILY,
    "mistral": mistral.FAMILY,
    "qwen2": qwen.QWEN2,
    "qwen3": qwen.QWEN3,
    "marian": marian.FAMILY,
    "m2m_100": m2m100.FAMILY,
    "bart": bart.BART,
    "mbart": bart.MBART,
    "t5": t5.T5,
    "mt5": t5.MT5,
    "umt5": t5.UMT5,
}
