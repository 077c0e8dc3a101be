"""Protocols of clients, one a module: how a request is read, and how its outcomes are answered."""
