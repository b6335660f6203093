"""Benchmark of training: throughput, CPU and memory of Rekindle and of Hugging Face's Trainer."""
