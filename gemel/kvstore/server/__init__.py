"""Parameter servers: processes of their own keep the values, for workers on many machines.

`server`, `state`, `entries`, `updates`, `journal`
    A server: its loop, its state, which only messages change, the data of a key, optimizers, and
    its files.
`client`, `connection`, `requests`, `errands`, `key`, `owners`
    The store of a worker, and a connection to each server.
`protocol`, `errors`, `settings`, `split`
    What both agree on: messages, errors, the settings of a job, which server keeps what.
`launch`, `places`, `processes`, `spare`, `ray`, `commands`
    Starting a job: on this machine or a Ray cluster, from the command line.
"""
