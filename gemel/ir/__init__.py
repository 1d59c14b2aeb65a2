"""The intermediate representation: operations, graphs of them, and how functions are traced.

`op`, `op_kinds`, `declare`
    An `Op` is declared once, in `gemel.ops`; everything else about it is derived from that.
`graph`, `text`, `verify`, `interpret`
    A `Graph` of `Node`s and `Entry`s, its text, its invariants, and its meaning by NumPy.
`trace`, `closed`, `known`, `free`
    What a function asks for while it runs on symbols: parameters, closed-over arrays, sizes.
`public`, `methods`, `protocols`, `keywords`, `signature`
    Where operations are public, and the methods and keywords of NumPy that go with them.
`layout`, `position`, `numbers`, `bases`, `philox`
    Strides, positions in loops, arithmetic on Python numbers, formulas, random bits.
"""
