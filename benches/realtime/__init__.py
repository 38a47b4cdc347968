"""Latency of queries in Real-Time Mode, from the topic that they read to the one they write."""
