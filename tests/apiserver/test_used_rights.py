"""The suite has run with the rights of `manifests/` alone: none is missing, none was left over.

This is the last test of `make test-apiserver`; conftest.py sees to that.
"""

from __future__ import annotations

import pytest

from apiserver.rights import granted, noted, problems, render
from support.clusters import ApiServer, find_kubectl


@pytest.mark.parametrize("account", ["partita-operator", "partita-agent", "partita-console"])
def test_each_right_was_used_and_none_was_missing(api_server: ApiServer, account: str) -> None:
    kubectl = find_kubectl()
    assert kubectl is not None
    assert api_server.audit_log is not None
    found = problems(granted(render(kubectl), account), noted(api_server.audit_log, account))
    assert not found, "\n".join([f"{account} in manifests/base:", *found])
