"""The families that can be imported, by the `model_type` of their config.json: a new one is a file and a line here."""

from __future__ import annotations

from model.importing import bert, distilbert, roberta
from model.importing.family import Family

FAMILIES: dict[str, Family] = {
    "bert": bert.FAMILY,
    "distilbert": distilbert.FAMILY,
    "roberta": roberta.FAMILY,
    "xlm-roberta": roberta.FAMILY,
    "camembert": roberta.FAMILY,
}
