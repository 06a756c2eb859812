"""Model cards: what a trained model is, what it was trained on, how well it does, what it must not be used for."""

from __future__ import annotations

from collections.abc import Mapping

_LICENCE = "Apache-2.0, as the rest of this repository. The training data is simulated; no person's data was used."
_EMBEDDER = """\
# embedder

A sequence of any length, one uint8 token a base (A0 C1 G2 T3, 4 for anything else), becomes a vector of 64
numbers. It is fed in chunks: `state` goes in and `next_state` comes out, 128 numbers that start as zeros.
Chunks are a multiple of eight tokens long, the last one as long as it is. A patch of eight bases with the one
before it drives 48 damped rotations (a linear recurrent unit in closed form); the embedding is a small
network's reading of the state.

A row's answer is the same, bit for bit, whatever batch it comes in.

## Training

Together with `effect` on simulated genomes ({num_training:,.0f} alleles), and to tell of the window's centre
how far homopolymers and microsatellites go on either side of it, which bases stand there, and the GC share of
the window. `cohortflow train --seed {seed}` makes the same file again.

## Held-out genomes ({num_held_out:,.0f} windows)

| what is read from the embedding by one linear layer | |
| --- | --- |
| length of the homopolymer right of the centre, log scale, R2 | {homopolymer_explained:.2f} |
| GC share of the window, R2 | {gc_explained:.2f} |
| the 16 bases around the centre, right | {central_bases_read:.0%} |

## Limits

It has seen simulated sequence alone. Its vectors are made for the models of this repository and mean nothing by
themselves.

## Licence

{licence}
"""
_READ_EMBEDDER = """\
# read_embedder

`embedder` (the same file, byte for byte) as a model with an iteration step: a request is a whole read of any
length, one uint8 token a base (A0 C1 G2 T3, 4 for anything else). The server takes it through the network 512
bases a step, carries the 128 numbers of the state, and gives the embedding after the last step: within rounding
what the network gives for the whole read at once. Reads of all lengths share the batches; a short one does not
wait for a long one.

Its longest memory fades to 1/e within {memory_bp:,.0f} bases: the embedding of a longer read tells mostly of its end.

It makes the mean embedding of a sample's reads, which shows what sample differs from the others, not why. For
training, measurements and limits see the card of `embedder`.

## Licence

{licence}
"""
_EFFECT = """\
# effect

From the embeddings of a 128-base window without and with an allele to one number from 0 to 1: how sure the
model is that the allele is damaging **by the rules of the simulation**.

**Trained on simulated labels, no clinical meaning.** It shows that the machinery works. It was never shown a
gene of any organism, and its output must not be used to judge a variant of a person.

## Training

Alleles of simulated genomes with simulated genes, {num_training:,.0f} of them, three negatives to a positive.
An allele counts as damaging when it takes a base from a splice signal, the start codon or the promoter motif,
makes or breaks a stop codon, or shifts the reading frame (`tasks/simulation/consequences.py`). Many labels hang
on what lies outside the window, so nothing reaches an area of 1. `cohortflow train --seed {seed}` makes the
same file again.

## Held-out genomes ({num_held_out:,.0f} alleles, {positive_share:.0%} damaging)

| | |
| --- | --- |
| area under the ROC curve | {auroc:.3f} |
| Brier score ({base_brier:.3f} for always saying the share) | {brier:.3f} |

## Limits

Trained where a quarter of the alleles are damaging: elsewhere the number is no probability. Alleles longer than
48 bases have no window. Between two versions of this model the numbers differ.

## Licence

{licence}
"""

VARIANTS_CARD = f"""\
# variants

The ensemble that scores alleles: `embedder` reads the window of the reference and the window with the allele put in,
`effect` compares what it made of them. Both windows are 128 bases long, the allele's normalised start at index 64.

**Trained on simulated labels, no clinical meaning**: see the card of `effect`.

## Licence

{_LICENCE}
"""


def embedder_card(metrics: Mapping[str, float], seed: int) -> str:
    """The card of the embedder, as Markdown."""
    return _EMBEDDER.format(seed=seed, licence=_LICENCE, **metrics)


def read_embedder_card(memory_bp: float) -> str:
    """The card of the embedder as it reads whole reads, as Markdown.

    Args:
        memory_bp: Bases until its longest memory has faded to 1/e.
    """
    return _READ_EMBEDDER.format(memory_bp=memory_bp, licence=_LICENCE)


def effect_card(metrics: Mapping[str, float], seed: int) -> str:
    """The card of the effect model, as Markdown."""
    share = metrics["positive_share"]
    return _EFFECT.format(seed=seed, licence=_LICENCE, base_brier=share * (1 - share), **metrics)
