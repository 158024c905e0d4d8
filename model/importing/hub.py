"""A model's folder from the Hugging Face hub, by its own client: only the files that an import reads.

HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are the client's settings and mean what its documentation says,
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables. It reports nothing about its use.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from model.importing.options import ModelImportError

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_TEXT_FILES = ["*.json", "*.jinja", "*.spm", "*.model", "merges.txt", "README.md"]
_SAFETENSORS, _PICKLES = ["model*.safetensors"], ["pytorch_model*.bin"]


class Fetched(NamedTuple):
    """A folder on this machine, and the commit of the repository that it holds."""

    folder: Path
    commit: str


def is_repository(text: str) -> bool:
    """Whether it has the form OWNER/NAME, as a repository on the hub is called."""
    return _REPOSITORY.fullmatch(text) is not None


def fetch(repository: str, revision: str | None = None) -> Fetched:
    """The files of `repository` at a branch, tag or commit, in the client's cache; ModelImportError where they are not.

    Weights are safetensors where there are any, else pickles.
    """
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # the client reads it as it is imported
    try:
        client: Any = importlib.import_module("huggingface_hub")
        constants: Any = importlib.import_module("huggingface_hub.constants")
    except ImportError as error:
        raise ModelImportError(
            f"{repository}: fetching needs huggingface_hub: pip install 'polyhead[train]'"
        ) from error
    try:
        if constants.HF_HUB_OFFLINE:
            patterns = [*_TEXT_FILES, *_SAFETENSORS, *_PICKLES]
        else:
            names = {file.rfilename for file in client.HfApi().model_info(repository, revision=revision).siblings or ()}
            has_safetensors = bool(names & {"model.safetensors", "model.safetensors.index.json"})
            patterns = [*_TEXT_FILES, *(_SAFETENSORS if has_safetensors else _PICKLES)]
        folder = Path(client.snapshot_download(repository, revision=revision, allow_patterns=patterns))
    except Exception as error:  # its own kinds, and whatever its connections raise
        reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        raise ModelImportError(f"{repository} cannot be fetched from {constants.ENDPOINT}: {reason}") from error
    return Fetched(folder, folder.name)
