"""What the agent frees once it has started; the tests of the whole agent go on after it."""

from __future__ import annotations

from partita.agent.start_memory import unchanged_files

SMAPS = """\
55d0c0000000-55d0c0002000 r--p 00000000 08:01 7 /usr/bin/python3
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd mr
55d0c0002000-55d0c0003000 r-xp 00002000 08:01 7 /usr/bin/python3
Rss:                   4 kB
Anonymous:             0 kB
55d0c0003000-55d0c0004000 r--p 00003000 08:01 7 /usr/bin/python3
Rss:                   4 kB
Anonymous:             4 kB
55d0c0004000-55d0c0005000 rw-p 00004000 08:01 7 /usr/bin/python3
Rss:                   4 kB
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 00:00 0
Rss:                   0 kB
Anonymous:             0 kB
7f0000001000-7f0000002000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
7f0000002000-7f0000003000 r--s 00000000 08:01 9                          /usr/lib/gconv/cache
Anonymous:             0 kB
"""


def test_only_unchanged_read_only_private_mappings_of_files_are_freed():
    assert list(unchanged_files(SMAPS)) == [(0x55D0C0000000, 0x2000), (0x55D0C0002000, 0x1000)]
