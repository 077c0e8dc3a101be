"""How functions get to workers.

`shipment` is what travels: by reference what `importable` finds again (unless `edited` since), by value what `pickling` can take
along; `blame` finds what can't, `tensors` refuses those of a device. `values` does the same for the values of calls, and
`environment` says what workers see of the trainer's.
"""
