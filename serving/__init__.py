"""The model server: named tensors in, named tensors out."""
