"""Operations on attempts: records, generations, HEAD, refills, access to storage."""
