"""Commands for administrators: validate, crds, run, agent, bundle and uninstall."""
