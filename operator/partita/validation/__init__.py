"""Validation of resources in files by CRD schemas, CEL rules and the operator's own checks."""
