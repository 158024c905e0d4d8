"""How requests are read and answered: parsing, replies, event streams, errors, middleware. Knows no model."""
