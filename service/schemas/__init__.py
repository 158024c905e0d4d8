"""What goes over the wire, as pydantic models: `*Request` in, `*Response` out."""
