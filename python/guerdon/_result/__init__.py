"""What comes of a batch: `result_builder` makes the result, `records` decodes what functions recorded,
`failures` says when they are too many."""
