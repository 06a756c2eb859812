from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tasks.files import read_json, write_json
from tasks.folder import RunFolder
from tasks.pipelines import make_pipeline
from tasks.reporting.manifest import make_manifest
from tasks.reporting.report import write_report
from tests.tasks.report_cohort import SECONDS, STATISTICS, make_cohort

TIMING = re.compile(r'<section id="timing">.*?</section>', re.DOTALL)
VOID = {"meta", "input", "br", "hr", "link", "img"}


def _page(folder: RunFolder, statistics: Any = None, seconds: dict[str, float] = SECONDS) -> str:
    write_report(folder, make_manifest(folder, statistics or [{"variants": STATISTICS}], seconds))
    return folder.report.read_text()


class Outline(HTMLParser):
    """The elements of a page, its attributes and text; fails where tags do not close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


class TableBoxes(HTMLParser):
    """For each table of a page, whether it lies in an element that scrolls."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.found: list[bool] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "div":
            self.open.append(dict(attrs).get("class") in ("box", "scroll"))
        elif tag == "table":
            self.found.append(any(self.open))

    def handle_endtag(self, tag: str) -> None:
        if tag == "div":
            self.open.pop()


def test_every_table_scrolls_in_a_box_of_its_own(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 6, failed={"S0002": ("TRUNCATED", "cut off")})
    manifest = make_manifest(folder, [{"variants": STATISTICS}], SECONDS)
    trio = {"child": "S0001", "father": "S0003", "mother": None, "sites": 9, "errors": 0, "error_rate": 0.0}
    manifest["identity"] = {"sites": 9, "pairs": 1, "relations": {}, "trios": [{**trio, "verdict": "fits"}]}
    sex = {"sheet": "XX", "verdict": "XX", "evidence": "X depth 1.01"}
    manifest["samples"]["S0001"]["sex"] = sex
    manifest["warnings"] = [{"sample": None, "warning": "SHEET", "message": "line 1, column sx: is sex meant"}]
    manifest["recipe"]["annotations"] = [{"name": "clinvar", "digest": "5" * 64, "fields": []}]
    counts = {"records_in": 1, "alleles": 1, "found": 1, "repeated": 0, "malformed": {}}
    manifest["annotations"] = {"clinvar": counts}
    write_report(folder, manifest)
    page = folder.report.read_text()
    for words in ("Children and their parents", "By what", "Of the cohort", "the sheet</th>"):
        assert words in page
    boxes = TableBoxes(page).found
    assert len(boxes) > 12
    assert all(boxes)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    failed = {"S0003": ("TRUNCATED", "/lab/incoming/S0003.fastq: cut off"), "S0005": ("WRONG_REFERENCE", "wrong?")}
    return _page(make_cohort(tmp_path_factory.mktemp("mixed") / "run", 8, failed=failed))


def test_page_is_well_formed_and_loads_nothing(mixed: str) -> None:
    outline = Outline(mixed)
    for tag, attributes in outline.elements:
        assert tag not in {"link", "img", "iframe", "object", "base", "form"}
        assert "style" not in attributes
        for name, value in attributes.items():
            assert name not in {"src", "srcset", "xlink:href"}
            assert not name.startswith("on")
            assert name != "href" or (value or "").startswith("#")
    assert "@import" not in mixed
    assert "url(" not in mixed


def test_links_lead_somewhere_and_ids_are_unique(mixed: str) -> None:
    outline = Outline(mixed)
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {(attributes["href"] or "")[1:] for tag, attributes in outline.elements if tag == "a"}
    assert links <= set(ids)
    assert {"failed", "samples", "notes", "scores", "reads", "alignments", "skipped", "models", "timing"} <= links


def test_policy_lets_only_our_own_script_and_style_run(mixed: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', mixed)
    assert policy is not None
    content = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in content
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", mixed, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in content


def test_plots_say_in_words_what_they_show(mixed: str) -> None:
    plots = re.findall(r"<svg.*?</svg>", mixed, re.DOTALL)
    assert len(plots) == 11
    for plot in plots:
        root = ElementTree.fromstring(plot)
        title, description = root[0], root[1]
        assert (title.tag, description.tag) == ("title", "desc")
        assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
        assert title.text
        assert description.text
        assert not re.search(r"\b(nan|inf)\b", plot)


def test_failures_are_counted_by_reason_at_the_top(tmp_path: Path) -> None:
    failed = {f"S000{number}": ("WRONG_REFERENCE", "wrong?") for number in (1, 3, 4)} | {"S0002": ("TRUNCATED", "cut")}
    page = _page(make_cohort(tmp_path / "run", 5, failed=failed))
    top = " ".join("".join(Outline(page[page.index("<h1>") : page.index('<p class="lead">')]).text).split())
    assert top == "5 samples: 1 done, 4 failed Not done: 3 WRONG_REFERENCE, 1 TRUNCATED"


def test_nothing_is_wider_than_a_narrow_page(mixed: str) -> None:
    """Tables and plots stand in boxes that scroll by themselves."""
    body = mixed[mixed.index("<main>") : mixed.index("</main>")]
    assert len(re.findall(r"<table", body)) == len(re.findall(r'<div class="(?:box|scroll)"[^>]*>\s*<table', body)) > 8
    assert len(re.findall(r"<svg", body)) == len(re.findall(r'<div class="box"><svg', body)) > 8


def test_ids_and_flags_break_where_people_would_break_them(tmp_path: Path) -> None:
    failed = {"plate_7-L001": ("WRONG_REFERENCE", "give it as --reference, or a_b")}
    page = _page(make_cohort(tmp_path / "run", 1, failed=failed, ids=["plate_7-L001"]))
    assert '<th scope="row">plate_<wbr>7-<wbr>L001</th>' in page
    assert 'give it as <span class="whole">--reference</span>, or a_b' in page


def test_headline_caution_and_failures_come_first(mixed: str) -> None:
    text = " ".join(Outline(mixed).text)
    assert "8 samples: 6 done, 2 failed" in text
    caution = make_pipeline("demo-effect").caution
    assert caution is not None
    places = [text.index(word) for word in (caution, "Samples not done", "TRUNCATED", "S0003.fastq: cut off", "S0008")]
    first_table = text.index("Correct what the message names")
    assert places[2] < places[0] < places[1] < first_table < places[3] < places[4]
    assert "/lab/incoming" not in mixed


def test_every_number_of_a_sample_stands_in_its_row(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 3)
    page = _page(folder)
    rows = re.findall(r'<tr><th scope="row">(S\d+)</th>(.*?)</tr>', page, re.DOTALL)
    output = read_json(folder.summary("S0001", "output"))
    cells = re.sub(r"<[^>]*>", " ", next(cells for name, cells in rows if name == "S0001")).split()
    for name in ("records_in", "records_out", "alleles", "scored"):
        assert f"{output[name]:,}" in cells
    assert f"{sum(output['skipped'].values()):,}" in cells


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}"


def test_texts_from_outside_are_escaped(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 4, failed={"S0002": ("BAD_VCF", f"contig {HOSTILE}")})
    for sample_id, stage in (("S0003", "intake"), ("S0001", "output")):
        path = folder.summary(sample_id, stage)
        summary = read_json(path)
        summary["warnings"] = [HOSTILE]
        if stage == "intake":
            summary["alignment"]["skipped"] = {HOSTILE: {HOSTILE: 3}}
            for file in summary["reads"]["files"]:
                file["name"] = HOSTILE
        else:
            summary["skipped"] = {HOSTILE: sum(summary["skipped"].values())}
        write_json(path, summary)
    page = _page(folder)
    outline = Outline(page)
    assert [tag for tag, _ in outline.elements].count("script") == 1
    assert not any(tag == "img" for tag, _ in outline.elements)
    assert "".join(outline.text).count(HOSTILE) >= 4
    assert "49" not in re.findall(r"contig [^<]*", page)[0]
    for plot in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(plot)


def test_only_the_timing_section_tells_two_runs_apart(tmp_path: Path) -> None:
    failed = {"S0002": ("TRUNCATED", "{root}/work/samples/S0002/sorted.bam: cut off")}
    pages = []
    for place, name in enumerate(("first", "second/deeper")):
        root = tmp_path / name / "run"
        texts = {i: (reason, message.format(root=root)) for i, (reason, message) in failed.items()}
        folder = make_cohort(root, 5, failed=texts)
        statistics = [{"variants": {**STATISTICS, "cache_hits": place}}]
        pages.append(_page(folder, statistics, {stage: seconds + place for stage, seconds in SECONDS.items()}))
        assert str(root) not in pages[-1]
    assert pages[0] != pages[1]
    assert TIMING.sub("", pages[0]) == TIMING.sub("", pages[1])


def test_a_sample_whose_reads_look_different_is_named(tmp_path: Path) -> None:
    page = _page(make_cohort(tmp_path / "run", 16))
    figure = next(part for part in page.split("<figure>") if "plot-embeddings" in part)
    assert "Apart from the others: S0007 (more than three times" in figure
    assert re.findall(r'class="(odd|mark)"[^>]*><title>(S\d{4})</title>', figure) == [
        ("mark", "S0003"),
        ("odd", "S0007"),
        ("mark", "S0011"),
        ("mark", "S0015"),
    ]
    assert "plot-embeddings" not in _page(make_cohort(tmp_path / "two" / "run", 8))


@pytest.mark.parametrize("num_samples", [1, 168])
def test_one_sample_and_many(tmp_path: Path, num_samples: int) -> None:
    page = _page(make_cohort(tmp_path / "run", num_samples))
    Outline(page)
    assert f"{num_samples} sample{'s' if num_samples > 1 else ''}, all done" in page
    assert "Failed samples</h2>" not in page
    table = page[: page.index('<section id="scores">')]
    assert len(re.findall(r'<th scope="row">S\d{4}</th>', table)) == 2 * num_samples + num_samples * 3 // 4
    # Many samples are drawn as distributions: the page's plots do not grow with the cohort.
    if num_samples > 40:
        drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
        assert "S0011" not in drawn
        assert len(drawn) < 100_000


def test_nothing_done_and_nothing_skipped(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 1, failed={"S0001": ("EMPTY_FILE", "the file is empty")})
    folder.alleles.unlink()
    page = _page(folder)
    Outline(page)
    assert "1 sample: 0 done, 1 failed" in page
    assert "No allele was skipped." in page


@pytest.mark.parametrize(("num_lines", "is_open"), [(3, True), (40, False)])
def test_long_messages_fold_and_lose_nothing(tmp_path: Path, num_lines: int, is_open: bool) -> None:
    lines = [f"  chr{n}  {n},000 bp   -" for n in range(num_lines)]
    failed = {"S0001": ("WRONG_REFERENCE", "\n".join(["other contigs:", *lines]))}
    page = _page(make_cohort(tmp_path / "run", 1, failed=failed))
    assert "<pre>" + "\n".join(lines) + "</pre>" in page
    assert ("<details open>" in page) == is_open


def test_report_is_its_owners_alone(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 1)
    _page(folder)
    assert folder.report.stat().st_mode & 0o777 == 0o600


def _luminance(colour: str) -> float:
    """Source: WCAG 2.2, relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("ink", "paper"), ("ink", "ground"), ("muted", "paper"), ("muted", "ground"), ("accent", "paper"),
        ("accent", "ground"), ("fail", "paper"), ("fail", "fail-ground"), ("caution", "caution-ground"),
    ],
)  # fmt: skip
def test_text_has_enough_contrast(mixed: str, text: str, ground: str) -> None:
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", mixed))
    light, dark = sorted((_luminance(colours[text]), _luminance(colours[ground])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, 1.4.3


def test_what_the_sheet_says_is_shown_while_it_is_short(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 2)
    settings = read_json(folder.settings)
    settings["samples"]["S0001"]["columns"] |= {"lab note": "<b>left</b>"}
    write_json(folder.settings, settings)
    page = _page(folder)
    assert "What the sheet says" in page
    assert '<th scope="col">lab note</th>' in page
    assert "<td>P-S0002</td>" in page
    assert "<td>&lt;b&gt;left&lt;/b&gt;</td>" in page
    settings["samples"]["S0002"]["columns"] |= {f"column {number}": "x" for number in range(9)}
    write_json(folder.settings, settings)
    assert "What the sheet says" not in _page(folder)
