"""Commands about jobs: submit, jobs, explain, logs, retry, suspend and resume."""
