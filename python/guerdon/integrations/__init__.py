"""Trainers and other libraries that Guerdon works with, each with an extra.

Importing an integration imports nothing of its library.
"""
