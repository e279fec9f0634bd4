"""From a snapshot of the machine to the devices that are offered."""
