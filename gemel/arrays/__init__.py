"""Arrays apart from computing.

`making`       arrays from arguments of functions: numbers, lists, NumPy's arrays, buffers
`exchange`     arrays as seen by other libraries: NumPy's protocols, DLPack, pickling, display
`inspection`   methods about what is in memory: strides, flags, bytes
`archives`     NumPy's files, `.npy` and `.npz`
`tensors`      safetensors files
"""
