"""From prompts to texts, whole or streamed, with stop sequences, in the protocols of TGI and OpenAI."""
