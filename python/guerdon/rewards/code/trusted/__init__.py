"""Rows, the program in a completion, its cases and tests: what computes judgements. Nothing of a
program runs here."""
