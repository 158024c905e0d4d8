"""What begins, ends and pads a text, where a decoder's config.json says so."""

from __future__ import annotations

from model.importing.options import Options


def token_ids(options: Options, name: str) -> list[int]:
    """One id or several, as the field has them; none where it is missing, null or -1."""
    value = options.get(name)
    values = value if isinstance(value, list) else [value]
    ids = [item for item in values if item is not None and item != -1]
    if any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in ids):
        options.refuse(name, value, "it must be a token id, or a list of them")
        return []
    return ids


def end_fields(options: Options) -> dict[str, int]:
    """bos_id, eos_id and pad_id of ModelConfig: each needs a value, so each stands in for those that are missing.

    Where generation ends is told by the "generation" section of metadata.json, which can name several tokens or none.
    """
    begins, ends, pads = (token_ids(options, f"{name}_token_id")[:1] for name in ("bos", "eos", "pad"))
    return {
        "bos_id": (begins or ends or [0])[0],
        "eos_id": (ends or begins or [0])[0],
        "pad_id": (pads or ends or begins or [0])[0],
    }
