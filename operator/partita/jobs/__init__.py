"""SharedGPUJobs: attempts and retries, their Pods and claims, their status."""
