"""Parameter servers: processes of their own keep the values, for workers on many machines.

`server.py` serves, `state.py` is the state of a server, and `journal.py` keeps it on disk.
`client.py` is the store of a worker, `protocol.py` defines the messages between the two, and
`launch.py` starts them.
"""
