"""The operator's Prometheus metrics: definitions, counters and the page of a scrape."""
