"""What runs in a program's own process, and the values that come out of it. It imports nothing heavy."""
