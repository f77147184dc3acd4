import sys

import pytest

from partita_policies import (
    PolicyImportError,
    PolicyParametersError,
    PolicyStartError,
    available,
    create,
    registry,
)
from support.imports import imported

PLUGIN = """
from pydantic import Field
from partita_policies import Parameters

class Needy(Parameters):
    level: int
    shares: dict[str, float] = Field(default_factory=dict)
    model: str | None = None

class Good:
    parameters = Parameters
    def __init__(self, parameters): ...
    def decide(self, snapshot): return []

class Choosy(Good):
    parameters = Needy
    def __init__(self, parameters):
        raise FileNotFoundError(f"no model {parameters.model}")

class Mute:
    parameters = Parameters

class Bare:
    decide = Good.decide

instance = Good(None)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution with policies on the path; returns the function that does."""

    def install(distribution, modules, policies):
        root = tmp_path / distribution
        info = root / f"{distribution}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n"
        )
        lines = "".join(f"{name} = {target}\n" for name, target in policies.items())
        (info / "entry_points.txt").write_text(f"[partita.policies]\n{lines}")
        for module, source in modules.items():
            (root / f"{module}.py").write_text(source)
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(root)

    return install


def test_the_built_in_policies_are_found():
    sources = available()
    assert {"fifo", "sjf", "tetris"} <= set(sources)
    assert sources["fifo"].target == "partita_policies.fifo:FIFO"
    assert sources["fifo"].distribution == "partita"


def test_only_the_wanted_policy_is_imported():
    listed = "from partita_policies import available, create; available()"
    policies = {f"partita_policies.{name}" for name in ("fifo", "sjf", "tetris")}
    assert not policies & imported(listed)
    assert policies - imported(f"{listed}; create('sjf')") == {"partita_policies.tetris"}


def test_a_third_party_policy_is_found_and_built(install):
    install("acme", {"acme_policies": PLUGIN}, {"good": "acme_policies:Good"})
    assert available()["good"].version == "1.2"
    assert type(create("good")).__name__ == "Good"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import no_such_module_anywhere", "No module named 'no_such_module_anywhere'"),
    ],
)
def test_a_plug_in_that_cannot_be_imported_is_named_and_breaks_no_other(install, source, cause):
    install("acme", {"acme_broken": source}, {"broken": "acme_broken:Policy"})
    with pytest.raises(PolicyImportError, match=cause) as caught:
        create("broken")
    assert "'broken' (acme_broken:Policy from distribution acme)" in str(caught.value)
    assert caught.value.__cause__ is not None
    assert "broken" in available()
    create("fifo")


@pytest.mark.parametrize(
    ("attribute", "cause"),
    [
        ("Nothing", "AttributeError"),
        ("instance", "is Good, not a class"),
        ("Mute", "no method decide"),
        ("Bare", "no class attribute parameters"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_reason(install, attribute, cause):
    install("acme", {"acme_policies": PLUGIN}, {"odd": f"acme_policies:{attribute}"})
    with pytest.raises(PolicyImportError, match=cause):
        create("odd")


def test_two_distributions_with_one_name_are_an_error_that_names_both(install):
    install("acme", {"acme_policies": PLUGIN}, {"good": "acme_policies:Good"})
    install("zenith", {"zenith_policies": PLUGIN}, {"good": "zenith_policies:Good"})
    assert available()["good"].rivals == ("zenith",)
    with pytest.raises(PolicyImportError, match=r"acme.* also offered by distribution zenith"):
        create("good")


def test_every_wrong_parameter_is_named():
    with pytest.raises(PolicyParametersError) as caught:
        create("tetris", {"window": 0, "usage": "median", "remaining_work": "much"})
    assert [name for name, _ in caught.value.problems] == ["remaining_work", "usage", "window"]
    assert "usage: Literal['mean', 'peak'] = 'mean'" in caught.value.allowed


def test_a_missing_parameter_is_named_and_types_are_shown_readably(install):
    install("acme", {"acme_policies": PLUGIN}, {"choosy": "acme_policies:Choosy"})
    with pytest.raises(PolicyParametersError, match="level: Field required") as caught:
        create("choosy", {})
    assert caught.value.allowed == (
        "level: int",
        "shares: dict[str, float] = {}",
        "model: str | None = None",
    )


def test_a_policy_that_refuses_to_be_built_says_why(install):
    install("acme", {"acme_policies": PLUGIN}, {"choosy": "acme_policies:Choosy"})
    with pytest.raises(PolicyStartError, match=r"'choosy' cannot start: .* no model big\.onnx"):
        create("choosy", {"level": 1, "model": "big.onnx"})


def test_what_is_installed_is_read_once(install, monkeypatch):
    read = []
    ours = registry.entry_points
    monkeypatch.setattr(registry, "entry_points", lambda **kw: read.append(kw) or ours(**kw))
    install("acme", {"acme_policies": PLUGIN}, {"good": "acme_policies:Good"})
    for _ in range(30):
        create("good")
    assert len(read) == 1
