"""SpliceAI: five convolutional networks and two gene tables, from Keras files."""

from __future__ import annotations

from serving.server import ModelServer
from tasks.published.convolutions import convolution_model
from tasks.published.keras_file import read_convolutions
from tasks.published.made import MadeModel
from tasks.published.splice_check import check_sites
from tasks.published.wheel import Wheel

CONTEXT_BP = 5000
OUTPUTS = ("neither", "acceptor", "donor")
_NUM_NETWORKS = 5
_TABLES = ("grch37.txt", "grch38.txt")
_DESCRIPTION = """\
A stretch of sequence, on the strand that is transcribed, becomes three numbers at every position: how likely it is
neither, the first base of an exon behind an acceptor, or the last one before a donor. They are the means of five
networks, each of which sees 5,000 bases to either side. `grch37.txt` and `grch38.txt` are the published
tool's tables of genes and exons."""


def read_models(wheel: Wheel) -> list[MadeModel]:
    """Makes one model of the five networks.

    Raises:
        PublishedModelError: An entry is missing, damaged, or no such network.
    """
    networks = []
    for number in range(1, _NUM_NETWORKS + 1):
        entry = f"spliceai/models/spliceai{number}.h5"
        networks.append(read_convolutions(wheel.read(entry), entry, str(number), CONTEXT_BP))
    tables = {name: wheel.read(f"spliceai/annotations/{name}") for name in _TABLES}
    return [convolution_model("spliceai", OUTPUTS, networks, _DESCRIPTION, tables)]


def check_models(wheel: Wheel, server: ModelServer) -> str:
    """Compares probabilities around a planted exon with those of SpliceAI's own networks.

    Raises:
        PublishedModelError: One differs by more than 1e-6.
    """
    return check_sites(server, "spliceai", "SpliceAI 1.3.1's five networks in Keras 3.15 on TensorFlow 2.21")
