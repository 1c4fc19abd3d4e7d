"""What pyproject.toml, the pins, the CI file and the changelog say must agree."""

import re
import tomllib
from pathlib import Path

import yaml

import ssmprune

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAPER = tomllib.loads((ROOT / "paper" / "pyproject.toml").read_text())["project"]
OF_PAPER = [line for line in PAPER["dependencies"] if not line.startswith("ssmprune[")]
FOR_USERS = ("torch", "data", "plot", "report", "ray", "flax", "export", "compile", "peers")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def lower_bounds(requirements):
    """The lowest version of each package that requirements allow."""
    parted = (re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", line) for line in requirements)
    return {canonical(found[1]): found[2] for found in parted}


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return {canonical(line.split("==")[0]): line.split("==")[1] for line in lines if line and line[0] != "#"}


def test_the_oldest_versions_that_ci_installs_are_the_lower_bounds():
    users = [*PROJECT["dependencies"], *(line for extra in FOR_USERS for line in EXTRAS[extra]), *OF_PAPER]
    oldest = pins(".ci/oldest.txt")
    assert {name: re.sub(r"(\.0)+$", "", version) for name, version in oldest.items()} == {
        name: re.sub(r"(\.0)+$", "", version) for name, version in lower_bounds(users).items()
    }


def test_every_direct_dependency_is_pinned():
    direct = [
        *PROJECT["dependencies"],
        *OF_PAPER,
        *(line for name, extra in EXTRAS.items() if name != "all" for line in extra),
    ]
    assert set(lower_bounds(direct)) <= set(pins("constraints.txt"))


def test_all_is_everything_for_users_and_nothing_for_developers():
    assert EXTRAS["all"] == [f"ssmprune[{','.join(FOR_USERS)}]"]
    assert set(EXTRAS) - {*FOR_USERS, "all"} == {"dev", "docs", "browser", "bench"}


def test_ci_runs_the_versions_that_the_classifiers_name():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs["test"]["strategy"]["matrix"]["python"] == versions
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert jobs["oldest"]["steps"][1]["with"]["python-version"] == versions[0]


def test_both_packages_have_one_version():
    assert PAPER["version"] == ssmprune.__version__


def test_changelog_and_citation_name_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heading = f"## {ssmprune.__version__} - {citation['date-released']}"
    assert citation["version"] == ssmprune.__version__
    assert heading in (ROOT / "CHANGELOG.md").read_text().splitlines()


def test_every_make_target_that_pages_name_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / ".github" / "workflows" / "ci.yml"]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?:`|run: |^    )make ([a-z-]+)", page.read_text(), re.M)
    }
    assert named
    assert {(page, name) for page, name in named if name not in targets} == set()
