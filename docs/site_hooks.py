"""Hooks of the documentation site: pages from outside of docs/, links between them, and pages made from the code.

On GitHub, links lead from file to file of the repository. Here a link to a page of the site leads to that page, and one to
anything else, a source file for example, becomes its text.
"""

from __future__ import annotations

import ast
import importlib
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/results/README.md": "results/index.md",
}
"""Files of the repository, and what they are called on the site; all other pages of benchmarks/results/ go to results/."""
_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def map_pages() -> dict[str, str]:
    """Return the page of the site for each file of the repository."""
    pages = {path.relative_to(ROOT).as_posix(): path.name for path in (ROOT / "docs").glob("*.md")}
    results = {path.relative_to(ROOT).as_posix(): f"results/{path.name}" for path in (ROOT / "benchmarks/results").glob("*.md")}
    folders = {"docs": "index.md", "benchmarks/results": "results/index.md", "benchmarks": "benchmarks.md"}
    return pages | results | ELSEWHERE | folders


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from elsewhere, and those made from the code."""
    added = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in map_pages().items() if (ROOT / name).is_file()}
    added |= {"commands.md": describe_commands(), "refusals.md": list_refusals()}
    for page, text in added.items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=text))
    for image in (ROOT / "benchmarks/results/images").glob("*.png"):
        files.append(File.generated(config, f"results/images/{image.name}", abs_src_path=str(image)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site."""
    sources = {target: source for source, target in map_pages().items() if (ROOT / source).is_file()}
    uri = page.file.src_uri
    source = f"docs/{uri}" if (ROOT / "docs" / uri).is_file() else sources.get(uri, f"docs/{uri}")
    return rewrite_links(markdown, source, uri)


def rewrite_links(markdown: str, source: str, uri: str) -> str:
    """Return a page with its links, outside of code, as the site needs them.

    Parameters
    ----------
    markdown
        The page.
    source
        Where it lies in the repository.
    uri
        Where it lies on the site.
    """
    pages = map_pages()

    def rewrite(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", match["target"]) or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        page = pages.get(path)
        if page is None and match["mark"] and path.startswith(("docs/", "benchmarks/results/")):
            page = path.removeprefix("docs/").replace("benchmarks/results/", "results/")
        if page is None:
            return match["text"] if (ROOT / path).exists() else match[0]  # what does not exist ends the build
        relative = posixpath.relpath(page, posixpath.dirname(uri) or ".")
        text = find_title(path) if re.fullmatch(r"`?[\w./-]+\.md`?", match["text"]) else match["text"]
        return f"{match['mark']}[{text}]({relative}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(^```.*?^```[^\n]*$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _LINK.sub(rewrite, part) for part in parts)


def find_title(path: str) -> str:
    """Return the title of a page of the repository: on the site nobody knows the names of its files.

    >>> find_title("docs/metrics.md")
    'Metrics and alerts'
    """
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), posixpath.basename(path))


def on_post_build(config: Any, **_: Any) -> None:
    """Refuse a site whose pages would load something from another host."""
    for path in sorted(Path(config["site_dir"]).rglob("*.html")):
        loaded = find_foreign(path.read_text(encoding="utf-8"))
        if loaded:
            raise PluginError(f"{path.name} loads {loaded[0]} from another host")


def find_foreign(html: str) -> list[str]:
    """Return what a page loads from other hosts; links that a reader follows are none of it.

    >>> find_foreign('<a href="https://example.org"></a><script src="app.js"></script><img src="//example.org/x.png">')
    ['//example.org/x.png']
    """
    return re.findall(r'<(?!a\b)[a-z]+\b[^>]*?\s(?:src|href|srcset)="((?:https?:)?//[^"]+)"', html)


# -- pages made from the code --------------------------------------------------------------------------------------------


def describe_commands() -> str:
    """Return a page with the help of every command."""
    from typer.main import get_command  # noqa: PLC0415 - only the site needs it

    group: Any = get_command(importlib.import_module("penstock.cli").app)
    lines = ["# Commands", "", "`penstock COMMAND --help` shows the same.", ""]
    for name, command in sorted(group.commands.items()):
        lines += [f"## penstock {name}", "", " ".join((command.help or "").split()), "", "| option | |", "|---|---|"]
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            options = ", ".join(f"`{option}`" for option in getattr(parameter, "opts", ()) if option.startswith("-"))
            title = options or f"`{parameter.metavar or parameter.name.upper()}`"
            text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
            lines.append(f"| {title} | {text} |")
        lines.append("")
    return "\n".join(lines)


def list_refusals() -> str:
    """Return a page with every error that Penstock raises, by the part that raises it."""
    lines = [
        "# What is refused",
        "",
        "Every error that Penstock raises, from the code. `...` stands for a value of yours. An error names the value, the",
        "place and what would be right. Nearly all are raised before anything has been written or started, so after a change",
        "you can simply try again. On the command line an error is one line, and the exit status is 2. Lines that Penstock",
        "logs while a job runs are explained in [Troubleshooting](troubleshooting.md).",
        "",
    ]
    for title, messages in sorted(find_refusals().items()):
        lines += [f"## {title}", "", _MEANINGS[title], "", *(f"- {message}" for message in messages), ""]
    return "\n".join(lines)


def find_refusals() -> dict[str, list[str]]:
    """Return the texts of all errors for users, by package."""
    package = ROOT / "src" / "penstock"
    found: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        area = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                name = getattr(node.exc.func, "id", "")
                text = read_text(node.exc.args[0])
                if name in {"PenstockError", "JournalError", "UnavailableError"} and re.search(
                    r"[a-z]{3}", text.replace("...", "")
                ):
                    found.setdefault(_AREAS.get(area, area), []).append(f"`{text.replace('`', chr(39))}`")
    return {title: sorted(set(messages)) for title, messages in found.items()}


_AREAS = {
    "__init__": "Durations, files and set-up",
    "cli": "The command line",
    "cluster": "Running a network",
    "control": "Controllers",
    "coordination": "Messages between nodes",
    "dashboard": "The dashboard",
    "decision": "Continuing a job",
    "demo": "The demo",
    "drop": "Priorities and units",
    "duration": "Durations, files and set-up",
    "errors": "Durations, files and set-up",
    "estimate": "Learners",
    "feedback": "Feedback to producers",
    "filesystem": "Durations, files and set-up",
    "journal": "The journal",
    "kafka": "Kafka as a transport",
    "las": "Load-aware shedding",
    "metrics": "Metrics",
    "network": "Networks in YAML",
    "observe": "The dashboard",
    "planning": "Planners",
    "shed": "Dead letters",
    "simulation": "The simulator and traffic",
    "spark": "Jobs on Spark",
    "storage": "Durations, files and set-up",
    "testing": "Testing",
}


_MEANINGS = {
    "Continuing a job": "A job starts again with settings under which a batch that is open would drop other rows than before.",
    "Controllers": "A controller, or what it decides, has a value that makes no sense. See [Controllers](controllers.md).",
    "Dead letters": "Rows shed to files, topics or offsets can't be found or sent again. See [Sinks](sinks.md).",
    "Durations, files and set-up": "A time, a place or a package that is needed is missing or can't be read.",
    "Feedback to producers": "What producers are told, and how they sample by it. See [Kafka](kafka.md).",
    "Jobs on Spark": "A DataFrame, a gate, a writer or a sink can't do what is asked. See [How Penstock works](concepts.md).",
    "Kafka as a transport": "Topics and brokers between nodes. See [Networks](networks.md).",
    "Learners": "A learner of costs or selectivities got a number that it can't learn from.",
    "Load-aware shedding": "Options of policies and sketches. See [Load-aware shedding](load-aware.md).",
    "Messages between nodes": "Nodes of a network can't talk, or say what the other does not know: versions may differ.",
    "Metrics": "Where numbers can't go. See [Metrics and alerts](metrics.md).",
    "Networks in YAML": "The file of a network is wrong; the message names the line. See [Planning](planning.md).",
    "Planners": "A plan was asked for that this planner can't make. See [Planning](planning.md).",
    "Priorities and units": "What a gate should keep. See [How Penstock works](concepts.md) and [Answers](answers.md).",
    "Running a network": "A network can't be run as it is described. See [Networks](networks.md).",
    "Testing": "A service that a test needs can't be had, or a contract of `penstock.testing` does not hold.",
    "The command line": "Options that exclude each other, or values out of range.",
    "The dashboard": "What can't be shown, or may not be asked. See [Dashboard](dashboard.md).",
    "The demo": "Options of `penstock demo`.",
    "The journal": "Two jobs, one journal; or a directory that can't be read or written. See [How Penstock works](concepts.md).",
    "The simulator and traffic": "Options of generators, traces and engines. See [Traffic](traffic.md).",
}
"""What each part's errors are about, in a line."""


def read_text(node: ast.expr) -> str:
    """Return what a string says, with ``...`` for what it is filled with."""
    return re.sub(r"%[srd]", "...", "".join(_read_parts(node)))


def _read_parts(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for value in values:
                yield from _read_parts(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _read_parts(left)
            yield from _read_parts(right)
        case _:
            yield "..."
