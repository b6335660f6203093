"""What the recovery benchmark observes: blobs, disks, the cluster, spans, records."""
