"""Operations on the queue: admit jobs, and forecast how long they wait."""
