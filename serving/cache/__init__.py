"""The row cache: a row that was computed before, by this process or another, is not computed again."""
