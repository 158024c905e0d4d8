"""Health, information, metrics, the page, and routes that belong to several heads."""
