"""What every suite of this repository can use; each plug-in says what it offers."""

pytest_plugins = ["support.clusters", "support.golden"]
