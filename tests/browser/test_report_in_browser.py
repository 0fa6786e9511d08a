"""The report in a real browser: content, layout, accessibility, and no network requests."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser.conftest import NAMES, Report
from tests.faulty_dataset import BROKEN, CLASSES

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
VIEWS = list(itertools.product(NAMES, WIDTHS, SCHEMES))

CUT_OFF = """() => [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && !e.closest('.scroll, pre, .hidden, .skip, svg')
        && (box.right > innerWidth + 1 || box.left < -1 || (e.scrollWidth > e.clientWidth + 1
            && e.clientWidth && getComputedStyle(e).overflowX === 'hidden'));
}).map(e => e.outerHTML.slice(0, 120))"""
OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll('h1, h2, h3, p, li.tile, figure, .scroll, dd, dt')]
        .filter(e => !e.closest('.scroll, details:not([open])') || e.matches('.scroll'))
        .filter(e => !e.closest('details:not([open])'))
        .map(e => ({e, b: e.getBoundingClientRect()})).filter(x => x.b.width && x.b.height);
    const found = [];
    for (let i = 0; i < boxes.length; i++)
    for (let j = i + 1; j < Math.min(i + 40, boxes.length); j++) {
        const [a, b] = [boxes[i], boxes[j]];
        if (a.e.contains(b.e) || b.e.contains(a.e)) continue;
        const w = Math.min(a.b.right, b.b.right) - Math.max(a.b.left, b.b.left);
        const h = Math.min(a.b.bottom, b.b.bottom) - Math.max(a.b.top, b.b.top);
        if (w > 1 && h > 1) found.push([a, b].map(x => x.e.outerHTML.slice(0, 80)).join(' / '));
    }
    return found;
}"""
ROWS = (
    """table => [...table.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent.trim()))"""
)
FOCUSABLE = "a[href], summary, [tabindex='0']"


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that collects its errors and network requests in `page.errors`."""
    width, scheme = getattr(request, "param", (1280, "light"))
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(f"console: {message.text}"))
    opened.on("pageerror", lambda error: errors.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    opened.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "data:")) else errors.append(r.url),
    )
    opened.on("requestfailed", lambda r: errors.append(f"failed: {r.url[:80]}"))
    opened.errors = errors  # type: ignore[attr-defined]
    yield opened
    context.close()


@pytest.mark.parametrize(
    ("name", "page"), [(n, (w, s)) for n, w, s in VIEWS], indirect=["page"], ids=str
)
def test_images_load_and_the_layout_fits_and_is_accessible(
    name: str, page: Page, reports: dict[str, Report]
) -> None:
    page.goto(reports[name].url)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.errors == []  # type: ignore[attr-defined]
    broken = "[...document.images].filter(i => !(i.complete && i.naturalWidth)).length"
    assert page.evaluate(broken) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(OVERLAPS) == []
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found] == []


@pytest.mark.parametrize(("scheme", "bright"), [("light", True), ("dark", False)])
def test_colors_follow_the_mode_of_the_system(
    scheme: Any, bright: bool, page: Page, reports: dict[str, Report]
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(reports["plain"].url)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) > 600) == bright


@pytest.mark.parametrize("name", NAMES)
def test_figures_match_the_manifest(name: str, page: Page, reports: dict[str, Report]) -> None:
    report = reports[name]
    page.goto(report.url)
    run = json.loads((report.dataset / "run.json").read_bytes())
    shown = {key: number(page, f"#{key}") for key in ("rows", "records", "rejected")}
    assert shown == {key: run[key] for key in shown}
    if report.code:
        assert run["message"] in page.inner_text("#message")
        return
    manifest = json.loads((report.dataset / "manifest.json").read_bytes())
    assert shown == {key: manifest["input"][key] for key in shown}
    assert number(page, "#dropped") == manifest["input"]["duplicates"]
    split_rows = (row for row in rows(page, "#split-table") if row[0] != "no split")
    assert {row[0]: list(map(int, row[1:6])) for row in split_rows} == {
        split: [*(e[k] for k in ("rows", "records", "rejected", "duplicates")), len(e["shards"])]
        for split, e in manifest["splits"].items()
    }
    shards = [shard for entry in manifest["splits"].values() for shard in entry["shards"]]
    assert [row[:2] + row[3:4] for row in rows(page, "#shard-table")] == [
        [shard["file"], str(shard["records"]), shard["sha256"][:12]] for shard in shards
    ]
    reasons = rows(page, "#reasons") if manifest["input"]["reasons"] else []
    assert {row[0]: int(row[1]) for row in reasons} == manifest["input"]["reasons"]
    if manifest["images"]:
        images = {row[0]: int(row[1]) for row in rows(page, "#treatments")}
        assert images == manifest["images"]


def test_class_counts_match_the_manifest_and_missing_classes_are_marked(
    page: Page, reports: dict[str, Report]
) -> None:
    page.goto(reports["faults"].url)
    manifest = json.loads((reports["faults"].dataset / "manifest.json").read_bytes())
    splits = [split for split in ("train", "validation", "test") if split in manifest["splits"]]
    assert len(splits) == len(manifest["splits"])
    counts = {name: [0] * len(splits) for name in CLASSES}
    for i, split in enumerate(splits):
        for label, count in manifest["splits"][split]["classes"]["label"].items():
            counts[CLASSES[int(label)]][i] += count
    shown = {row[0]: row[1 : 2 + len(splits)] for row in rows(page, ".class-table")}
    assert shown == {
        name: [str(CLASSES.index(name)), *(str(n) if n else "missing" for n in of_splits)]
        for name, of_splits in counts.items()
    }
    channels = manifest["channels"]
    assert rows(page, "#channels") == [
        [name, *(f"{value:.4f}" for value in channels[key])]
        for name, key in (("mean", "mean"), ("standard deviation", "std"))
    ]
    assert "1 class of 'label' without any record (never seen)" in page.inner_text("#verdict")


def test_leakage_matches_the_manifest_and_images_are_shown_side_by_side(
    page: Page, reports: dict[str, Report]
) -> None:
    page.goto(reports["faults"].url)
    content = json.loads((reports["faults"].dataset / "manifest.json").read_bytes())["content"]
    assert content["leaks"]
    assert [[*row[:2], *map(int, row[2:])] for row in rows(page, "#leak-table")] == [
        [*leak["splits"], leak["images"], leak["records"]] for leak in content["leaks"]
    ]
    assert number(page, "#conflict-images") == content["conflicts"]["images"]
    identical = page.locator("#leaks .groups").first  # the groups of similar images follow
    groups = identical.locator(".group")
    assert groups.count() == 5
    for group in groups.all():
        images = group.locator("img").evaluate_all("images => images.map(i => i.src)")
        assert len(images) == 2
        assert images[0] == images[1]
    leaked = identical.locator(".group", has_text="in several splits").count()
    assert leaked == number(page, "#leak-images")


def test_rejects_are_shown_with_their_image_and_source(
    page: Page, reports: dict[str, Report]
) -> None:
    page.goto(reports["rejected"].url)
    shown = {row[0]: int(row[1]) for row in rows(page, "#reasons")}
    assert shown == BROKEN
    with_image = "h3[id='reason-truncated'] ~ ul"
    assert page.locator(with_image).first.locator("img").count() == 6
    malformed = page.locator("h3[id='reason-malformed_row'] ~ ul").first
    key, detail, source = malformed.inner_text().split("\n\n")
    assert (key, source.endswith("labels.csv:99")) == ("(no key)", True)
    assert detail == "',' expected after '\"'. Double the quotes within a field."


def test_hostile_input_is_shown_as_text(page: Page, reports: dict[str, Report]) -> None:
    page.goto(reports["faults"].url)
    assert page.title() == "faults 1.0.0 · recordmill report"
    active = "script, iframe, object, embed, form, base, link[rel=stylesheet], [onerror], [style]"
    assert page.locator(active).count() == 0
    assert page.locator("b:not(.findings b)").count() == 0
    text = page.inner_text("body")
    assert CLASSES[2] in text
    assert "<b>bold</b> & \\u202egnp.png" in text
    assert "\u202e" not in text


def test_the_content_security_policy_blocks_images_and_scripts(
    page: Page, reports: dict[str, Report]
) -> None:
    page.goto(reports["plain"].url)
    blocked = page.evaluate("""async () => {
        const blocked = [];
        const note = event => blocked.push(event.violatedDirective);
        document.addEventListener('securitypolicyviolation', note);
        const image = new Image();
        image.src = 'http://127.0.0.1:9/x.png';
        document.body.append(image);
        const script = document.createElement('script'); script.text = 'document.title = "broken"';
        document.body.append(script);
        await new Promise(done => setTimeout(done, 200));
        return blocked.sort();
    }""")
    assert blocked == ["img-src", "script-src-elem"]
    assert page.title() == "plain 1.0.0 · recordmill report"


@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_reaches_every_control_in_order_with_visible_focus(
    name: str, page: Page, reports: dict[str, Report]
) -> None:
    page.goto(reports[name].url)
    page.evaluate(
        f"""[...document.querySelectorAll("{FOCUSABLE}")].filter(e => e.checkVisibility())
        .forEach((e, i) => e.dataset.order = i)"""
    )
    expected = page.evaluate("document.querySelectorAll('[data-order]').length")
    reached = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("Number(document.activeElement.dataset.order ?? -1)"))
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) != "none"
    assert reached == list(range(expected))
    assert expected > 10
    first = page.locator("summary").first
    first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")


def rows(page: Page, table: str) -> list[list[str]]:
    """Returns the texts of the cells of a table, by row."""
    found: list[list[str]] = page.locator(table).evaluate(ROWS)
    return found


def number(page: Page, selector: str) -> int:
    """Returns the number shown in an element."""
    return int(re.sub(r"\D", "", page.inner_text(selector)))
