"""What is wrong with resources in files: CRD schemas, CEL rules and the operator's own checks."""
