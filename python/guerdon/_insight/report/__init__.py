"""The report on a journal: ``guerdon report``.

`survey` reads the contents, and `summary` counts in a second pass over the journal's parts, with
`moments`, `tally`, `groups`, `failures` and `slowest`; `aggregates` and `findings` make
figures and sentences of it, `html` one HTML file.
"""

from __future__ import annotations
