"""Allocated and used GPU time and GPU memory, by namespace, application and partition."""
