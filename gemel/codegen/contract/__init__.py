"""Matrix products: which kernels compute them, and with which tiling."""
