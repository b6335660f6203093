"""Operations on money: budgets, and the prices that the service remembers."""
