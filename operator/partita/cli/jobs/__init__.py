"""Commands about jobs and workloads: submit, jobs, workloads, logs, retry, suspend and resume."""
