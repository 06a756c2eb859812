"""CI-SpliceAI: five convolutional networks in one frozen TensorFlow graph, and two gene tables."""

from __future__ import annotations

from serving.server import ModelServer
from tasks.published.convolutions import convolution_model
from tasks.published.frozen_convolutions import FrozenGraph
from tasks.published.made import MadeModel
from tasks.published.splice_check import check_sites
from tasks.published.tensorflow_graph import read_graph
from tasks.published.wheel import Wheel

OUTPUTS = ("neither", "acceptor", "donor")
_GRAPH = "cispliceai/data/CI-SpliceAI.pb"
_TABLES = ("grch37.csv", "grch38.csv")
_DESCRIPTION = """\
A stretch of sequence, on the strand that is transcribed, becomes three numbers at every position: how likely it is
neither, the first base of an exon behind an acceptor, or the last one before a donor. They are the means of five
networks, each of which sees 5,000 bases to either side. `grch37.csv` and `grch38.csv` are the published
tool's tables of genes and junctions."""


def read_models(wheel: Wheel) -> list[MadeModel]:
    """Makes one model of the five networks.

    Raises:
        PublishedModelError: An entry is missing, damaged, or no such graph.
    """
    networks = FrozenGraph(read_graph(wheel.read(_GRAPH), _GRAPH), _GRAPH).networks()
    tables = {name: wheel.read(f"cispliceai/data/{name}") for name in _TABLES}
    return [convolution_model("cispliceai", OUTPUTS, networks, _DESCRIPTION, tables)]


def check_models(wheel: Wheel, server: ModelServer) -> str:
    """Compares probabilities around a planted exon with those of the published graph.

    Raises:
        PublishedModelError: One differs by more than 1e-6.
    """
    return check_sites(server, "cispliceai", "CI-SpliceAI 1.2.2's own graph in TensorFlow 2.21")
