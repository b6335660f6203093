"""Operations on jobs: submit, plan, check their rows, change, cancel, enforce deadlines."""
