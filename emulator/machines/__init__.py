"""Emulated VMs as processes: boot, cloud-init, docker, and the metadata service."""
