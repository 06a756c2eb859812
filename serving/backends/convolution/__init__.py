"""The convolution backend: fully convolutional networks over sequences, asked about edits of a sequence."""
