"""Operations on files: upload, in one request or in parts."""
