"""What was done, in a record that shows when it was tampered with."""
