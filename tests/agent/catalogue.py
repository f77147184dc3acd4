"""The immediate actions of NVIDIA's Xid catalogue, release 610, read without the agent's table.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, "Resolution Bucket (Immediate
Action)", for Xids that apply to a GPU. 45, 48, 74 and 144 to 150 name a workflow instead.
"""

IGNORE = frozenset(
    {14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 157, 160, 161}
)
RESTART_APP = frozenset(
    {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86}
    | {88, 89, 94, *range(96, 106), *range(126, 136), 139}
)
RESET = frozenset({46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
