"""What clients speak, one protocol a module: how a request is read, and how its outcomes are
answered."""
