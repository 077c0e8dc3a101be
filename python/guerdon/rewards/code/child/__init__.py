"""What runs in a program's process, and the values that come out of it: light to import."""
