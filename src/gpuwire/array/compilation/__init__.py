"""Functions that are traced once and then called by one task: `gpuwire.compile`.

`compiled_function` finds the trace for a call's signature (`structures`); `tracing` makes one by
running the function over a device that writes down what is done on it; `programs` runs it.
"""
