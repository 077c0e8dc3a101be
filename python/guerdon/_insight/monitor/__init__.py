"""Live views of a running dispatcher: the address of its metrics (`address`), the sockets of its
live state (`sockets`), the engine's settings for both (`settings`), and that no forked child keeps
them open (`forks`)."""
