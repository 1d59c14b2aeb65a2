"""The intermediate representation: operations, graphs of them, and how functions are traced.

`op`, `op_kinds`, `combiner`, `rules`, `declare`, `signature`
    An `Op` is declared once, in `gemel.ops`; everything else about it is derived from that.
`graph`, `text`, `formulas`, `verify`, `interpret`
    A `Graph` of `Node`s and `Entry`s, its text, its invariants, and its meaning by NumPy.
`trace`, `current`, `inputs`, `state`, `extents`, `recording`, `scopes`
    The trace in progress, and its parts: what a function asks for while it runs on symbols.
`closed`, `known`, `free`, `precision`, `loops`
    Arrays closed over, values and sizes known while tracing; mixed precision; the parts of loops.
`public`, `late`, `protocols`, `keywords`
    Where operations are public, which are imported late, and the keywords of NumPy.
`array_methods`, `methods`, `element_methods`, `unavailable`
    The methods that arrays and symbols share, and those that symbols lack.
`layout`, `position`, `numbers`, `bases`, `philox`, `reference`
    Strides, positions in loops, arithmetic on Python numbers, formulas, random bits, NumPy.
`above`
    What operations need from the layers above, which import this one.
"""
