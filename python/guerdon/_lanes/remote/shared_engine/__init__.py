"""``cluster="host"``: the ranks of a host share one engine, in a separate process.

`meeting` is where they find each other, `joining` who starts the engine and who connects,
`agent_start` and `agent_process` are that process from outside and inside, `greeting` what both
ends say first, `cluster` what a dispatcher's engine sees of it. Messages go through the extension.
"""
