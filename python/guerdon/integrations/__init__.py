"""Trainers and other libraries that Guerdon works with, each with an extra of its own.

Importing an integration imports nothing of its library.
"""
