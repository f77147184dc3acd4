"""Trains the learned policies, with torch."""
