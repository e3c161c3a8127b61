"""Fixtures of the tests that open the page in a browser, which are skipped where there is none, and options."""

from __future__ import annotations

import pytest


def pytest_addoption(parser):
    parser.addoption("--runs", type=int, default=2000, help="runs of each method whose drawn law is tested")


@pytest.fixture
def runs(request) -> int:
    return request.config.getoption("--runs")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    from tests.pagekit import CHROMIUM, FLAGS

    if CHROMIUM is None:
        pytest.skip("no Chromium found")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from specviz.ui import files
    from tests.pagekit import served
    from tests.visitors import solo

    folder = tmp_path_factory.mktemp("traces")
    (folder / "recorded.jsonl").write_text(files.text_of({"plain": solo()}), "utf-8")
    with served(folder) as site:
        yield site


@pytest.fixture
def visit(browser, site):
    from tests.pagekit import until
    from tests.visitors import Visitor

    visitors = []

    def open_page(query: str = "", **how):
        visitors.append(Visitor(browser, site, query, **how))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.close()
    until(lambda: not site.running)


@pytest.fixture(scope="module")
def address():
    """The views alone, on recorded runs."""
    from tests.frontkit import served

    with served() as found:
        yield found


@pytest.fixture
def opened(browser, address):
    from tests.frontkit import Page

    pages = []

    def start(*args, **kwargs):
        pages.append(Page(browser, address, *args, **kwargs))
        return pages[-1]

    yield start
    for one in pages:
        one.context.close()
