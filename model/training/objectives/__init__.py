"""What a run can learn, one file each; `base` is the seam."""

from __future__ import annotations

from typing import Any

from model.training.objectives.base import Objective
from model.training.objectives.causal_lm import CausalLm
from model.training.objectives.contrastive import Contrastive
from model.training.objectives.masked_lm import MaskedLm
from model.training.objectives.translation import Translation

OBJECTIVES: dict[str, type[Objective[Any, Any, Any]]] = {
    "translation": Translation,
    "contrastive": Contrastive,
    "masked_lm": MaskedLm,
    "causal_lm": CausalLm,
}
"""By the `kind` of a configuration's objective."""
