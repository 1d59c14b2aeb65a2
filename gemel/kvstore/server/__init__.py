"""Parameter servers: processes of their own keep the values, for workers on many machines.

`server`, `session`, `state`, `entries`, `updates`, `optimizer_states`, `journal`
    A server: its loop, its ends of connections, its state, which only messages change, the data of
    a key, optimizers and their states, and its files.
`client`, `reports`, `connection`, `requests`, `errands`, `key`, `owners`
    The store of a worker, what it tells of itself, and a connection to each server.
`protocol`, `errors`, `settings`, `split`
    What both agree on: messages, errors, the settings of a job, which server keeps what.
`launch`, `places`, `processes`, `spare`, `ray`, `commands`
    Starting a job: on this machine or a Ray cluster, from the command line.
"""
