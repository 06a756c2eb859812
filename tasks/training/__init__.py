"""Training of the shipped models, on simulated data alone. The only files that import torch for training."""
