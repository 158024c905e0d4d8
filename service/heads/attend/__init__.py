"""What a model looks at, as numbers, pictures and a page: everything of POST /attention above the engine."""
