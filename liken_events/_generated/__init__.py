"""The kubelet's messages, made from `packaging/protos` by `packaging/check-stubs --write`."""
