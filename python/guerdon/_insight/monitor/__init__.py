"""What shows a running dispatcher: where its metrics are served (`address`), where its live state
is found (`sockets`), what the engine is told of both (`settings`), and that no forked child keeps
them open (`forks`)."""
