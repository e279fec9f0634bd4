"""liken-events: the node agent that reacts.

Sources turn bytes into triggers, the loop turns triggers into one fresh snapshot, pure functions
turn the snapshot into an inventory and then into changes, and sinks carry the changes out:

    sources/  ->  core/decode  ->  inbox, reconcile  ->  core/model  ->  Latest  ->  core/plan  ->
    sinks/

A trigger only says where to look again. The snapshot is the truth. A sink follows the newest
inventory, alone.
"""

__version__ = "0.1.0"
