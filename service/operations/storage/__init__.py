"""Operations on stored blobs: manifests, integrity, access tiers, deletion."""
