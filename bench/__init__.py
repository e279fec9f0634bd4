"""Benchmarks: what the README claims, measured.

`python -m bench` measures every promise about speed, memory and silence on the machine it runs on,
and fails if one is not kept. Events are real: they are sent by netlink in a network namespace of
the benchmark's own. The machine that is looked at is a tree of files.

One module measures one group of promises: `noise`, `scale`, `scan`, `latency`, `storm`, `idle`,
`polling`. What they share are nouns: `crowd` (machines of any size), `agent_process`,
`slice_file`, `uevent_queue`, `measurement`, `machine`. `docs/benchmarks.md` says what each number
means.
"""
