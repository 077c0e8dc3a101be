"""Judging: rows, the program in a completion, its cases and tests. No program runs here."""
