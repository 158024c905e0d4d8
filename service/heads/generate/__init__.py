"""From prompts to texts: tokens become text as they come, and stop where the client says. Knows no HTTP."""
