"""Start and end of the engine, and the options of a dispatcher."""
