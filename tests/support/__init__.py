"""What several suites share: API servers, clients and faults."""
