"""Every line that Penstock logs while a job runs has its entry in docs/troubleshooting.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "troubleshooting.md"
SAY = {"Warn", "info", "note", "warn", "warning"}
"""What says something: an instruction, a logger, a driver, a list of notes."""
PASS_ON = {
    ("cluster/channels.py", "watch"),
    ("cluster/node.py", "_run_queries"),
    ("cluster/node.py", "run"),
    ("cluster/node_query.py", "_read"),
    ("coordination/cluster_coordinator.py", "step"),
    ("coordination/coordinator.py", "_plan"),
    ("coordination/coordinator.py", "step"),
    ("coordination/message_exchange.py", "note"),
    ("coordination/message_exchange.py", "receive"),
    ("decision/core.py", "decide"),
    ("decision/core.py", "learn"),
    ("decision/core.py", "warn_failure"),
    ("decision/by_arrival.py", "_warn_of_clock"),
    ("decision/by_arrival.py", "confirm"),
    ("decision/driver.py", "carry_out"),
    ("decision/gate_state.py", "update"),
    ("decision/loss_ceiling.py", "hold"),
    ("feedback/publisher.py", "_guard"),
    ("journal/journal.py", "__init__"),
    ("journal/queued_writer.py", "_run_beside"),
    ("metrics/journal_poll.py", "_complain"),
    ("spark/reported_driver.py", "_take_in"),
    ("spark/batch_driver.py", "_plan"),
    ("spark/batch_driver.py", "_warn_of_size"),
    ("spark/batch_sizes.py", "_count_files"),
    ("spark/connect/connect_batch_driver.py", "__init__"),
    ("spark/connect/connect_batch_driver.py", "_take_stand_in"),
    ("spark/connect/reported_query.py", "_warn_of_size"),
    ("spark/query_driver.py", "explain_end"),
    ("spark/query_driver.py", "guard"),
    ("spark/query_driver.py", "look_at_sources"),
    ("spark/query_driver.py", "warn"),
    ("spark/shedder.py", "_launch"),
}
"""Where a line is said whose words come from elsewhere, from one of ``WORDS``."""
WORDS = {
    ("control/micro_batch.py", "_note"),
    ("coordination/coordinator.py", "_plan"),
    ("decision/by_arrival.py", "_warn_of_clock"),
    ("decision/by_arrival.py", "confirm"),
    ("decision/core.py", "learn"),
    ("decision/loss_ceiling.py", "hold"),
    ("drop/shares.py", "warn"),
    ("journal/files.py", "read_state"),
    ("metrics/journal_poll.py", "refresh"),
    ("network/drops.py", "_refuse"),
    ("network/drops.py", "derive_drops"),
    ("spark/batch_sizes.py", "NO_RATIO"),
    ("spark/batch_sizes.py", "NO_SIZE"),
    ("spark/connect/connect_batch_driver.py", "LATE"),
    ("spark/kafka_source.py", "SPARSE"),
    ("spark/kafka_source.py", "_FAILURES"),
    ("spark/kafka_source.py", "find_silent_brokers"),
    ("spark/plan_checks.py", "find_risks"),
    ("spark/sinks/kafka_sink.py", "note"),
}
"""Functions and constants whose texts are said somewhere else."""
_FEWEST_LETTERS = 8


def read_pieces(node: ast.expr) -> list[str]:
    """Return the fixed pieces of a text; none if it is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [piece for piece in re.split(r"%[srdg]", node.value) if piece]
    if isinstance(node, ast.JoinedStr):
        return [piece for value in node.values for piece in read_pieces(value)]
    if isinstance(node, ast.BinOp):
        return read_pieces(node.left) + read_pieces(node.right)
    return []


def find_parts(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield functions and constants with their names; those in classes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node


def find_said(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield (function, pieces) for everything that is said directly."""
    for name, part in find_parts(tree):
        if not isinstance(part, ast.FunctionDef):
            continue
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if called in SAY:
                    yield name, read_pieces(node.args[0])


def find_words(part: ast.AST) -> Iterator[list[str]]:
    """Yield the texts of several words in a function or constant, without docstrings, patterns and what is raised."""
    inner = {id(value) for node in ast.walk(part) if isinstance(node, ast.JoinedStr) for value in node.values}
    documented = {
        id(node.body[0].value)
        for node in ast.walk(part)
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    raised = {id(inside) for node in ast.walk(part) if isinstance(node, ast.Raise) for inside in ast.walk(node)}
    for node in ast.walk(part):
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in raised | inner | documented:
            pieces = read_pieces(node)
            text = " ".join(pieces)
            if "|" not in text and "\\" not in text and len(re.findall(r"[A-Za-z]{2,}", text)) >= 3:
                yield pieces


def longest(pieces: list[str]) -> str:
    """Return the piece by which a text is recognised."""
    return " ".join(max(pieces, key=len, default="").split()).strip(" ':;,")


def has_words(pieces: list[str]) -> bool:
    """Whether a text says something itself, or only passes on."""
    return sum(character.isalpha() for character in longest(pieces)) >= _FEWEST_LETTERS


def list_messages() -> dict[str, str]:
    """Return what each message is recognised by, and where it comes from."""
    messages = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("testing/"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = [(function, pieces) for function, pieces in find_said(tree) if has_words(pieces)]
        said += [(part, pieces) for part, node in find_parts(tree) if (name, part) in WORDS for pieces in find_words(node)]
        messages |= {longest(pieces): f"{name}: {part}" for part, pieces in said if has_words(pieces)}
    return messages


def read_page() -> str:
    return " ".join(PAGE.read_text(encoding="utf-8").replace("`", "").replace("**", "").split())


def test_every_message_has_an_entry() -> None:
    page = read_page()
    assert [f"{place}: {text}" for text, place in list_messages().items() if text not in page] == []


def test_what_is_said_with_others_words_is_known() -> None:
    """A new place that says what it was given needs its source in ``WORDS``, or its texts would go unnoticed."""
    unknown = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for function, pieces in find_said(ast.parse(path.read_text(encoding="utf-8"))):
            if not has_words(pieces) and not name.startswith(("testing/", "cli/")) and (name, function) not in PASS_ON:
                unknown.add((name, function))
    assert unknown == set()


@pytest.mark.parametrize(("file", "part"), sorted(WORDS))
def test_sources_of_words_exist(file: str, part: str) -> None:
    parts = dict(find_parts(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))))
    assert part in parts
    assert any(has_words(pieces) for pieces in find_words(parts[part]))


def test_messages_are_found() -> None:
    tree = ast.parse(
        'def f(log, x):\n    """What it does for us."""\n    log.warning("%s: a line that is said", x)\n'
        '    self.warn(f"{x}: {x}")\n'
        'NOTE = "words of a constant"\n'
    )
    assert list(find_said(tree)) == [("f", [": a line that is said"]), ("f", [": "])]
    assert [longest(pieces) for name, part in find_parts(tree) if name == "NOTE" for pieces in find_words(part)] == [
        "words of a constant"
    ]
    assert not has_words([": "])
    assert longest([" '", "more of it: "]) == "more of it"
