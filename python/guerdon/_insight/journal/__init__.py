"""How a journal is written and read.

- Writing: `plan` is what the engine is told, `columns` which values of a batch it keeps,
  `json_texts` those that are no strings, `versions` what tells one version of a function from
  another, `dispatcher_facts` what the rows don't say of their dispatcher.
- Reading: `schema` is what a part has, `part_files` its two forms, `parts` the parts of a folder
  for all that reads journals, `reading` all of them as one table.
"""
