"""Programs on a server elsewhere."""
