"""Judges and reward services, before a request is made.

`address` checks where requests go, `dialects` knows the APIs of judges, `template` parses prompts,
`body` makes the request's JSON, `column_texts` the texts of a batch, `plan` holds what the engine
gets, `api_key` finds API keys, `leaked_keys` detects them elsewhere, `reward` is the item of a
dispatcher's list, `options` checks what judges and reward services share, `tls` those of TLS.
"""
