"""`python -m service`: serve until SIGTERM or Ctrl-C, and answer what was accepted before the end.

Exit codes: 0 after a requested end, 1 when the server failed, 2 when the settings or a bundle do not let it start.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from service.errors import StartupError
from service.heads.registry import load_models
from service.http.access import open_access
from service.logs import configure_logging
from service.operations.metrics import Metrics
from service.server import serve
from service.settings import load_settings, unknown_variables

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; the exit code when it ends."""
    # The cores belong to the models: a tokenizer that shares out its lists waits for them (docs/decisions/0060).
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    metrics = Metrics()
    try:
        settings = load_settings(arguments)
        configure_logging(settings.log_level)
        for warning in unknown_variables():
            logger.warning(warning)
        # Loaded here and not in the lifespan, so that a fault is one readable line instead of a traceback.
        access = open_access(settings)
        registry = load_models(settings, metrics.observer)
    except StartupError as error:
        for line in str(error).splitlines():
            print(f"polyhead: {line}", file=sys.stderr)
        return 2
    return serve(settings, registry, metrics, access)


if __name__ == "__main__":
    sys.exit(main())
