"""Serialization of functions and values for workers.

- `serialized_functions`: by reference what workers can import (`importable`, unless `source_check`
  finds the file changed), by value what `function_pickler` can pickle.
- `pickling_diagnostics` names the parts that can't be pickled, `tensors` refuses those of a device.
- `column_values` pickles the values of calls.
"""
