"""What runs in the guest: `python -m tests.vm.inside`."""
