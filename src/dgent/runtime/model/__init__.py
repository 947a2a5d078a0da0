"""Models: one request and its streamed answer, by a provider or a script, with retries and budgets above."""
