"""``cluster="host"``: the ranks of a host share one engine, in a separate process.

`meeting` has the files by which they find each other, `joining` decides who starts the engine,
`agent_start` starts that process, `agent_process` is its program, `greeting` has the first messages
of both ends, `cluster` the dispatcher's side. Messages go through the extension.
"""
