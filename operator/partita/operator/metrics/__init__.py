"""What the operator tells Prometheus: definitions, what is counted, and the page of a scrape."""
