"""Writing and reading of journals.

- Writing: `options` has the user's settings, `plan` the engine's, `json_texts` the values that are
  not strings, `versions` the versions of functions.
- Reading: `schema` is what a part has, `part_files` its two forms, `parts` the parts of a folder
  for all that reads journals, `reading` all of them as one table.
"""
