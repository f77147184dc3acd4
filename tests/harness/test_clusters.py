from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.clusters import ApiServer, NotForTestsError, check_for_tests


def kubeconfig(folder: Path, cluster: str, *, current: str = "here") -> Path:
    contexts = [
        {"name": "elsewhere", "context": {"cluster": "partita-test", "user": "u"}},
        {"name": "here", "context": {"cluster": cluster, "user": "u"}},
    ]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump({"contexts": contexts, "current-context": current}))
    return path


@pytest.mark.parametrize("cluster", ["partita-test", "partita-test-7", "partita-embedded"])
def test_a_cluster_named_for_tests_is_accepted(tmp_path: Path, cluster: str):
    check_for_tests(kubeconfig(tmp_path, cluster))


@pytest.mark.parametrize("cluster", ["production", "my-partita-test", "partita-embedded-2", ""])
def test_any_other_cluster_is_refused_by_name(tmp_path: Path, cluster: str):
    with pytest.raises(NotForTestsError, match=f"the cluster '{cluster}'"):
        check_for_tests(kubeconfig(tmp_path, cluster))


def test_a_kubeconfig_without_a_current_cluster_is_refused(tmp_path: Path):
    with pytest.raises(NotForTestsError, match="no current context"):
        check_for_tests(kubeconfig(tmp_path, "partita-test", current="nowhere"))
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(NotForTestsError, match="no current context"):
        check_for_tests(empty)


def test_the_server_of_this_run_is_one_for_tests(api_server: ApiServer):
    check_for_tests(api_server.kubeconfig)
