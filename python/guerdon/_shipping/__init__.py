"""How functions get to workers: what travels (`shipment`), by reference (`importable`) or by value (`pickling`), who is to
blame for what can't (`blame`), and the values that calls get (`values`)."""
