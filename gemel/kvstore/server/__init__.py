"""Parameter servers: values kept by processes of their own, for workers on many machines.

`server.py` serves, `state.py` is what a server knows, `journal.py` keeps it; `client.py` is the
store of a worker; `protocol.py` says what travels between them, and `launch.py` starts them.
"""
