"""Keras models that tests serve by name; imported only where Keras is."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras


def two_headed(width: int = 8) -> keras.Model:
    """score [2] and chance [1] of x [6] and tokens [-1]."""
    keras.utils.set_random_seed(7)
    x = keras.Input((6,), name="x")
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    state = keras.layers.GRU(3)(keras.layers.Embedding(5, 4)(tokens))
    hidden = keras.layers.Dense(width, activation="relu", kernel_regularizer="l2")(x)
    hidden = keras.layers.BatchNormalization()(hidden)
    both = keras.layers.Concatenate()([hidden, state])
    score = keras.layers.Dense(2, name="score")(both)
    chance = keras.layers.Dense(1, activation=keras.activations.sigmoid, name="chance")(both)
    return keras.Model([x, tokens], [score, chance])
