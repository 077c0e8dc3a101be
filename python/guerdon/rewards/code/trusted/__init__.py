"""What computes judgements: rows, the program in a completion, its cases and tests. Nothing of a program
runs here."""
