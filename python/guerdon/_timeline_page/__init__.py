"""A timeline as a page: ``guerdon trace --html``.

`protobuf` reads many messages at a time, `recorded` makes slices, instants and counters of a file
that the engine wrote; `merging` and `counters` make few bars of many, `page_data` orders them by
rows, and `html` puts them into one file.
"""

from __future__ import annotations
