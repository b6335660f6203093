"""Resources that are kept, checked and shown, with nothing behind them."""
