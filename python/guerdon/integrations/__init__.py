"""Trainers and other libraries that Guerdon works with: one file or folder and one extra each, imported when used.

`guerdon.integrations.trl`: TRL's trainers. Importing an integration imports nothing of its library.
"""
