"""From texts and files in one language to another: everything of /translate above the engine."""
