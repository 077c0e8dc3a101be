"""How functions get to workers: what travels (`shipment`), by reference (`importable`) or by value (`pickling`), and who is to
blame for what can't (`blame`)."""
