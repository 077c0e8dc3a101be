"""The inside of a program's process, and the values that come out of it. It imports nothing heavy."""
