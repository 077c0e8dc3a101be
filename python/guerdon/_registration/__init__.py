"""What a reward function is: its name, contract and lane (`spec`), what its signature asks for (`signature`), what may be
said of it (`options`), how callables are told apart (`callables`)."""
