"""What becomes of a batch: failures, rules, recorded extras."""
