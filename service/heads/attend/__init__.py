"""POST /attention: attention maps as numbers, pictures and a page."""
