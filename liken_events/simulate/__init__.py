"""A machine that is not there: a sysfs tree made from a snapshot, and the uevents that go with its
changes.

`tree` builds the machine and changes it as the kernel would, `uevents` sends what the kernel would
say, `namespace` finds a place where it can be said without anybody else hearing it, `script` is
the demonstration, and `recordings` has the machine that comes with the package.
"""
