"""What comes of a batch: `records` decodes what functions recorded, `totals` adds up each sample,
`failures` says when there are too many."""
