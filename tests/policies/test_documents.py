"""What docs/writing-a-policy.md shows works as it stands there."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing-a-policy.md"


def test_policy_of_the_document_passes_the_check_that_it_shows():
    code = "\n".join(
        re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    )
    names = {}

    exec(compile(code, DOCUMENT.name, "exec"), names)
    names["test_my_policy"]()

    assert names["LargestFirst"]
