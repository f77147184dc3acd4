"""Who gets which GPU: requests, snapshot, queue order, policy, guard, reasons for waiting."""
