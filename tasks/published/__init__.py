"""Published models: downloaded, read without running or unpickling anything, checked, kept as repositories."""
