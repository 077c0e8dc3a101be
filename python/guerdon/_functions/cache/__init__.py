"""Versions of functions for ``cache=``: which version of a function an outcome is of, and the
folders of a dispatcher.

`versions` hashes what decides a function's outcomes, `python_code` what a Python function is made
of, `modules` which modules are the user's own; `folders` opens what a dispatcher's functions name.
"""
