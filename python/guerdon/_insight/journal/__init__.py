"""How a journal is written and read.

- Writing: `options` is what the user says, `plan` what the engine is told, `json_texts` the values
  that are no strings, `versions` what tells one version of a function from another,
  `dispatcher_facts` what the rows don't say of their dispatcher.
- Reading: `schema` is what a part has, `part_files` its two forms, `parts` the parts of a folder
  for all that reads journals, `reading` all of them as one table.
"""
