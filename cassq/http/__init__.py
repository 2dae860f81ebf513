"""The HTTP door: `cassq serve`.

It parses, asks the gate, calls the library and maps errors; what decides is below it. It needs `cassq[http]`.
"""
