"""Benchmarks: what the README claims, measured.

`python -m bench` measures every promise about speed, memory and silence on the machine it runs on,
and fails if one is not kept. Events are real: they are sent by netlink in a network namespace of
the benchmark's own. The machine that is looked at is a tree of files.

One module measures one group of promises: `noise`, `scale`, `scan`, `latency`, `storm`, `idle`,
`polling`. What they share are nouns: `crowd` (machines of any size), `agent_process`,
`slice_file`, `uevent_queue`, `measurement`, `machine`. `docs/benchmarks.md` says what each number
means.

`kernel` alone is about real devices on a real kernel, in a guest, and has parts of its own:
`guest`, `plugs` (what is plugged in), `exchange` (plugging and waiting), `kernel_trace` (the
kernel's own times) and `changes` (how long a file took).

`cluster` is about a real API server and has parts of its own: `audited` (the control plane and its
audit log), `slice_watch` (a stranger's watch), `wire` (bytes), `fleet` and `simulated_nodes` (many
nodes), `kubelet_restarts` (a node whose kubelet is started again).
"""
