"""Judges and reward services, before a request is made.

`address` checks where requests go, `template` reads prompts, `body` makes the request's JSON, `fields` the texts of a batch, `plan`
holds what the engine is told, `secret` finds API keys, `mislaid` what looks like one in other places, `reward` is the object that
stands in a dispatcher's list, `options` what judges and reward services have in common of all this.
"""
