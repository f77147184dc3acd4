"""Research on policies: simulator, training, replay, advice, costs."""
