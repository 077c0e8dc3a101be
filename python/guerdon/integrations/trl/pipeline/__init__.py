"""The synchronous trainer: rewards that are computed while it generates or trains."""
