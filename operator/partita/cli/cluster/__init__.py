"""Commands for whoever runs Partita on a cluster: validate, crds, run, agent and bundle."""
