"""Which waiting jobs start now, and where: snapshot, policy, guard. Pure: no I/O."""
