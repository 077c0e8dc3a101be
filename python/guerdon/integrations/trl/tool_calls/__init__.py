"""Tools and methods of environments, run on the engine."""
