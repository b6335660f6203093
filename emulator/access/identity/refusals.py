"""Why a sign-in was refused, by Entra ID's number."""


class SignInRefused(Exception):
    """An AADSTS error: its number, OAuth's word for it, and the text without either."""

    def __init__(self, number: int, error: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.number = number
        self.error = error
        self.status = status
