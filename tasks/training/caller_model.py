"""The caller's folder in the model repository: network, configuration, ensemble and card, trained from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from tasks.calling.evidence import NAMES
from tasks.calling.pileup import CHANNELS, WIDTH_BP
from tasks.files import write_bytes
from tasks.training.caller import Embed, measure, train_caller
from tasks.training.caller_examples import (
    HARD_WEIGHT,
    CallExamples,
    is_hard_individual,
    load_examples,
    select_individuals,
    simulate_examples,
)
from tasks.training.caller_network import Caller, caller_onnx
from tasks.windows import WINDOW_BP

NUM_INDIVIDUALS = 240
GENOME_BP = 300_000
NUM_EPOCHS = 25
_VALIDATED_EVERY = 3
_MAX_BATCH_SIZE = 1024
_DEPTHS = (0.0, 10.0, 20.0, 40.0, float("inf"))


@dataclass(frozen=True, slots=True)
class TrainedCaller:
    """What a training gave.

    Attributes:
        onnx: The network's file.
        card: The model's card, Markdown.
    """

    onnx: bytes
    card: str


def fit_caller(
    scratch: Path,
    embed: Embed,
    embedding_size: int,
    seed: int,
    *,
    num_individuals: int = NUM_INDIVIDUALS,
    genome_bp: int = GENOME_BP,
    num_epochs: int = NUM_EPOCHS,
) -> TrainedCaller:
    """Simulates individuals and trains the caller on them; every third one is held out to calibrate and measure.

    Args:
        scratch: Folder for the examples; those that lie there from the same seed are used again.
        embed: The embedder that the caller will stand behind.
        embedding_size: Length of its vector.
        seed: Of the individuals and the training.
        num_individuals: How many to simulate, at least three.
        genome_bp: Length of each one's genome.
        num_epochs: Passes over the training examples.
    """
    files = [simulate_examples(scratch, seed, individual, genome_bp) for individual in range(num_individuals)]
    return fit_caller_to(files, embed, embedding_size, seed, num_epochs=num_epochs)


def fit_caller_to(
    files: Sequence[Path], embed: Embed, embedding_size: int, seed: int, *, num_epochs: int = NUM_EPOCHS
) -> TrainedCaller:
    """Trains on files of `simulate_examples`, in the order of their individuals."""
    examples = load_examples(list(files))
    individual = np.arange(len(files))
    is_held_out = individual % _VALIDATED_EVERY == _VALIDATED_EVERY - 1
    is_usual = np.array([not is_hard_individual(number) for number in range(len(files))])
    train = select_individuals(examples, ~is_held_out)
    held_out = select_individuals(examples, is_held_out)
    model = train_caller(train, held_out, embed, embedding_size, seed=seed, num_epochs=num_epochs)
    lines = []
    for low, high in pairwise(_DEPTHS):
        chosen = is_held_out & is_usual & (examples.depth >= low) & (examples.depth < high)
        name = f"{low:g}-{high:g}x" if np.isfinite(high) else f"{low:g}x and more"
        lines += _quality_lines(name, select_individuals(examples, chosen), model, embed)
    lines += _quality_lines("all of these", select_individuals(examples, is_held_out & is_usual), model, embed)
    hard = select_individuals(examples, is_held_out & ~is_usual)
    lines += _quality_lines("hard", hard, model, embed)
    return TrainedCaller(caller_onnx(model), _card(train, len(files), seed, lines))


def write_caller(repository: Path, trained: TrainedCaller, embedding_size: int, state_size: int) -> None:
    """Writes ``caller/`` and the ensemble ``reads/`` (embedder, then caller)."""
    caller, reads = repository / "caller", repository / "reads"
    write_bytes(caller / "1" / "model.onnx", trained.onnx)
    write_bytes(caller / "MODEL_CARD.md", trained.card.encode())
    write_bytes(caller / "config.pbtxt", _caller_config(embedding_size).encode())
    write_bytes(reads / "config.pbtxt", _reads_config(state_size).encode())
    write_bytes(reads / "MODEL_CARD.md", _READS_CARD.encode())


def _quality_lines(name: str, examples: CallExamples, model: Caller, embed: Embed) -> list[str]:
    if not len(examples.copies):
        return []
    rows = []
    for kind, snv in (("SNV", True), ("indel", False)):
        quality = measure(model, examples, embed, snv=snv)
        rows.append(
            f"| {name} | {kind} | {quality.num_true:,} | {quality.f1:.3f} | {quality.precision:.3f} | "
            f"{quality.recall:.3f} | {quality.genotype_concordance:.3f} | {quality.calibration_error:.3f} |"
        )
    return rows


def _card(train: CallExamples, num_individuals: int, seed: int, quality_lines: list[str]) -> str:
    false, het, homozygous = np.bincount(train.copies, minlength=3)
    table = "\n".join(quality_lines)
    return f"""# caller

Tells how many copies (0, 1, 2) of a candidate allele a diploid sample carries, from short reads.

- **In:** `embedding` of the reference window, `pileup` uint8 [{WIDTH_BP}, {len(CHANNELS)}], `evidence` float32
  [{len(NAMES)}] (`tasks/calling/pileup.py` and `tasks/calling/evidence.py` name the columns). **Out:** `genotype`
  float32 [3], and `log_likelihood` float32 [3], the same without how common 0, 1 and 2 copies are.
- **Network:** the reads' likelihoods of 0, 1 and 2 copies, corrected by three convolutions over the pileup, a layer
  each over evidence and embedding, two joint layers; answers do not depend on the batch.
- **Trained on simulated reads alone**, aligned by minimap2: {num_individuals} individuals (seed {seed}), 5-100x, 2x100
  to 2x151, two thirds of them to learn from ({len(train.copies):,} candidates: {false:,} carried by no haplotype,
  {het:,} by one, {homozygous:,} by both). Every second individual is a hard one: few variants, a genome full of
  paralogues and breakpoints, a poor run; its examples count {HARD_WEIGHT:g}. Several networks learnt the copies, and
  the one that ships learnt to answer as they do on average.
- **Calibrated** (a temperature and three shifts, for single bases and for indels apart) on the held-out individuals,
  hard ones again at {HARD_WEIGHT:g}; an allele is called where P(any copy) >= 0.5, and no other threshold was chosen.
  GQ and QUAL hold for such a mixture: in a genome as misleading as the hard ones they are too sure (`make bench-calls`
  says by how much). No real file was used to train or to set anything. The simulator, the realignment of reads and the
  evidence, though, were improved after callers had failed on a real slice (chr20:10.0-10.1 Mb of NA12878), so figures
  on that slice are not those of a blind test.
- **Held-out simulated individuals** (calls at P >= 0.5; alleles without a candidate count as missed):

| depth | kind | true alleles | F1 | precision | recall | genotypes right | calibration error |
| --- | --- | --- | --- | --- | --- | --- | --- |
{table}

- **For** genomes, exomes and panels read by Illumina and machines like it: reads of 70 to 300 bases, 5-fold and deeper
  (deeper than 100-fold adds nothing), at most 2 % spliced. `reads/config.pbtxt` states this, and samples outside of it
  are not called.
- **Not for:** long reads, somatic variants, mosaics, structural variants, insertions that no read holds whole,
  clinical use. Where a sample has one copy of
  a place, an allele is called when the network takes it for two of two.
"""


_READS_CARD = """# reads

An ensemble: `embedder` (the reference window) then `caller`. See their cards.
"""


def _caller_config(embedding_size: int) -> str:
    return f"""name: "caller"
platform: "onnxruntime_onnx"
max_batch_size: {_MAX_BATCH_SIZE}
input [
  {{ name: "embedding" data_type: TYPE_FP32 dims: [ {embedding_size} ] }},
  {{ name: "pileup" data_type: TYPE_UINT8 dims: [ {WIDTH_BP}, {len(CHANNELS)} ] }},
  {{ name: "evidence" data_type: TYPE_FP32 dims: [ {len(NAMES)} ] }}
]
output [
  {{ name: "genotype" data_type: TYPE_FP32 dims: [ 3 ] }},
  {{ name: "log_likelihood" data_type: TYPE_FP32 dims: [ 3 ] }}
]
dynamic_batching {{ preferred_batch_size: [ {_MAX_BATCH_SIZE} ] }}
response_cache {{ enable: true }}
"""


def _reads_config(state_size: int) -> str:
    return f"""name: "reads"
platform: "ensemble"
max_batch_size: {_MAX_BATCH_SIZE}
input [
  {{ name: "reference_window" data_type: TYPE_UINT8 dims: [ {WINDOW_BP} ] }},
  {{ name: "state" data_type: TYPE_FP32 dims: [ {state_size} ] }},
  {{ name: "pileup" data_type: TYPE_UINT8 dims: [ {WIDTH_BP}, {len(CHANNELS)} ] }},
  {{ name: "evidence" data_type: TYPE_FP32 dims: [ {len(NAMES)} ] }}
]
output [
  {{ name: "genotype" data_type: TYPE_FP32 dims: [ 3 ] }},
  {{ name: "log_likelihood" data_type: TYPE_FP32 dims: [ 3 ] }}
]
parameters {{ key: "domain_platforms" value: {{ string_value: "ILLUMINA,DNBSEQ,ELEMENT,SINGULAR" }} }}
parameters {{ key: "domain_read_length_bp" value: {{ string_value: "70-300" }} }}
parameters {{ key: "domain_depth" value: {{ string_value: "5-100" }} }}
parameters {{ key: "domain_max_spliced_share" value: {{ string_value: "0.02" }} }}
ensemble_scheduling {{
  step [
    {{
      model_name: "embedder"
      model_version: -1
      input_map {{ key: "tokens" value: "reference_window" }}
      input_map {{ key: "state" value: "state" }}
      output_map {{ key: "embedding" value: "embedding" }}
    }},
    {{
      model_name: "caller"
      model_version: -1
      input_map {{ key: "embedding" value: "embedding" }}
      input_map {{ key: "pileup" value: "pileup" }}
      input_map {{ key: "evidence" value: "evidence" }}
      output_map {{ key: "genotype" value: "genotype" }}
      output_map {{ key: "log_likelihood" value: "log_likelihood" }}
    }}
  ]
}}
"""
