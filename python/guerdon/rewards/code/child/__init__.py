"""The inside of a program's process, and its values on their way out. It imports nothing heavy."""
