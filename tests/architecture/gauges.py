"""Measure language and shape of the code, against a budget that may only improve.

`make lint` runs `python -m tests.architecture.gauges`: it prints each gauge and fails if one is worse than
`gauges_budget.toml` allows. `--show GAUGE` lists the places that a gauge counts. `--lower` writes better values into
the budget, never worse ones. The rules that the gauges stand for are in docs/style.md.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET = Path(__file__).with_name("gauges_budget.toml")
COINED = frozenset(Path(__file__).with_name("gauges_coined.txt").read_text().split())
PRODUCT = ("web", "workers", "shared", "deploy")
MIGRATIONS = "/migrations/versions/"
"""A migration is written once and never changed; its text is not measured."""
VAGUE_VERBS = frozenset(
    [
        "Give",
        "Tell",
        "Say",
        "Have",
        "Let",
        "Take",
        "Ask",
        "Begin",
        "Hear",
        "Bring",
        "Put",
        "Look",
        "Go",
        "Keep",
        "Hand",
        "Know",
        "Hold",
        "Leave",
    ]
)
PRONOUNS = re.compile(r"\b(whoever|whatever|whichever|nobody|somebody|anybody|whom|whose)\b", re.IGNORECASE)
CLAUSE_SUBJECT = re.compile(
    r"(?:^|[.;:] )(What|Who|Whoever|Whatever|Nobody|Somebody|Nothing that)\b [a-z]", re.MULTILINE
)
CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
FOREIGN_NAMES = frozenset({"pg_restore", "ignore_startup_parameters"})
"""Names of other programs, which only pages mention."""
FOLDER_MODULES = 25
SUBJECT_CHARACTERS = 72
COMMITS = 50
"""The commits that are measured, from the newest; older subjects cannot be changed any more."""
RISING = frozenset({"comments_per_100_lines"})
"""Gauges whose greater values are better."""

Measured = tuple[float, list[str]]
"""A gauge's value, and the places that it counts."""


def sources(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each module of the product, without migrations."""
    for top in PRODUCT:
        for path in sorted((root / top).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if MIGRATIONS not in name:
                yield name, path.read_text()


def vague_first_verbs(root: Path) -> Measured:
    """Return the percentage of functions whose docstring begins with a verb that says nothing of the result."""
    found, total = [], 0
    for name, line, text, is_function in _docstrings(root):
        total += is_function
        if is_function and text.split()[0].strip(".,:") in VAGUE_VERBS:
            found.append(f"{name}:{line}: {text.splitlines()[0]}")
    return round(100 * len(found) / max(total, 1), 1), found


def relative_pronouns(root: Path) -> Measured:
    """Return the number of pronouns that stand for a noun which the reader has to guess."""
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, source in sources(root)
        for number, line in enumerate(source.split("\n"), 1)
        for _ in PRONOUNS.findall(line)
    ]
    return len(found), found


def clause_subjects(root: Path) -> Measured:
    """Return the number of sentences in docstrings whose subject is a clause: "What is …", "Who asks …"."""
    found = [
        f"{name}:{line}: {match[0].strip()}"
        for name, line, text, _ in _docstrings(root)
        for match in CLAUSE_SUBJECT.finditer(text)
    ]
    return len(found), found


def coined_identifiers(root: Path) -> Measured:
    """Return the number of uses of identifiers that `gauges_coined.txt` lists: words that no engineer searches for."""
    found = [
        f"{name}:{token.start[0]}: {token.string}"
        for name, source in sources(root)
        for token in _tokens(source)
        if token.type == tokenize.NAME and token.string in COINED
    ]
    return len(found), found


def comments_per_100_lines(root: Path) -> Measured:
    """Return the number of comment lines for each hundred lines of code."""
    comments = code = 0
    for _, source in sources(root):
        own = {
            token.start[0]
            for token in _tokens(source)
            if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
        }
        comments += len(own)
        code += sum(bool(line.strip()) for line in source.split("\n")) - len(own)
    return round(100 * comments / max(code, 1), 2), []


def module_lines_p95(root: Path) -> Measured:
    """Return the 95th percentile of the lines of a module. A long module is one question: which two things is it?"""
    sizes = sorted((len(source.splitlines()), name) for name, source in sources(root))
    return sizes[len(sizes) * 95 // 100][0], [f"{lines:4} {name}" for lines, name in reversed(sizes[-30:])]


def modules_in_largest_folder(root: Path) -> Measured:
    """Return the number of modules in the fullest folder of the product; `__init__` does not count."""
    sizes = _folder_sizes(name for name, _ in sources(root))
    return max(sizes.values()), [f"{size:4} {folder}" for folder, size in sizes.most_common(15)]


def crowded_folders(root: Path) -> Measured:
    """Return the number of folders with more than 25 modules, tests included."""
    names = [name for name in _listed(root) if name.endswith(".py") and MIGRATIONS not in name]
    crowded = [(size, folder) for folder, size in _folder_sizes(names).items() if size > FOLDER_MODULES]
    return len(crowded), [f"{size:4} {folder}" for size, folder in sorted(crowded, reverse=True)]


def unresolved_names(root: Path) -> Measured:
    """Return the number of names in backticks in READMEs and pages that stand nowhere else in the tree."""
    names = _listed(root)
    known = set(FOREIGN_NAMES)
    for name in names:
        known.update(re.findall(r"[A-Za-z_]\w+", name))
        if not name.endswith((".md", ".json", ".png")):
            known.update(re.findall(r"[A-Za-z_]\w+", (root / name).read_text(errors="ignore")))
    found = []
    for name in names:
        if name.endswith(".md") and name != "CHANGELOG.md":
            page = (root / name).read_text()
            # An example defines names of its own.
            own = known.union(re.findall(r"[A-Za-z_]\w+", "".join(CODE_BLOCK.findall(page))))
            quotes = re.findall(r"`([^`\n]+)`", CODE_BLOCK.sub("", page))
            found += [f"{name}: {quoted}" for quoted in quotes if _is_unknown(quoted, own)]
    return len(found), found


def long_commit_subjects(root: Path) -> Measured:
    """Return the number of the newest commits whose subject is longer than 72 characters."""
    log = subprocess.run(
        ["git", "log", f"-{COMMITS}", "--no-merges", "--format=%s"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    long = [
        f"{len(subject):4} {subject}"
        for subject in log.stdout.splitlines()
        if len(subject) > SUBJECT_CHARACTERS
    ]
    return len(long), long


GAUGES: tuple[Callable[[Path], Measured], ...] = (
    vague_first_verbs,
    relative_pronouns,
    clause_subjects,
    coined_identifiers,
    comments_per_100_lines,
    module_lines_p95,
    modules_in_largest_folder,
    crowded_folders,
    unresolved_names,
    long_commit_subjects,
)


def is_worse(name: str, value: float, allowed: float | None) -> bool:
    """Return whether a value is worse than its budget; without a budget nothing is."""
    if allowed is None:
        return False
    return value < allowed if name in RISING else value > allowed


def lowered(budget: dict[str, float], values: dict[str, float]) -> dict[str, float]:
    """Return the budget with every value that is better than its own."""
    return {
        name: budget[name] if is_worse(name, value, budget.get(name)) else value
        for name, value in values.items()
    }


def main() -> None:
    """Print the gauges. Exit with 1 if one is worse than its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", metavar="GAUGE", help="list the places that this gauge counts")
    parser.add_argument("--lower", action="store_true", help="write better values into the budget")
    options = parser.parse_args()
    budget: dict[str, float] = tomllib.loads(BUDGET.read_text())
    values = {}
    for gauge in GAUGES:
        name = gauge.__name__
        values[name], places = gauge(ROOT)
        note = "   WORSE" if is_worse(name, values[name], budget.get(name)) else ""
        print(f"{name:28} {values[name]:>7}   budget {budget.get(name, '-'):>7}{note}")
        if options.show == name:
            print("\n".join(places))
    if options.lower:
        lines = (f"{name} = {value}\n" for name, value in lowered(budget, values).items())
        BUDGET.write_text(
            "# These may only improve: `python -m tests.architecture.gauges --lower`.\n" + "".join(lines)
        )
    elif any(is_worse(name, value, budget.get(name)) for name, value in values.items()):
        sys.exit("A gauge is worse than its budget; --show GAUGE lists its places.")


def _docstrings(root: Path) -> Iterator[tuple[str, int, str, bool]]:
    """Yield each docstring's module, line and text, and whether it is a function's."""
    for name, source in sources(root):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and text.split():
                    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                    yield name, getattr(node, "lineno", 1), text, is_function


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def _folder_sizes(names: Iterator[str] | list[str]) -> Counter[str]:
    return Counter(name.rpartition("/")[0] for name in names if not name.endswith("__init__.py"))


def _listed(root: Path) -> list[str]:
    """Return the paths of the files that git has or would add."""
    arguments = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(arguments, cwd=root, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\n") if name and (root / name).is_file()]


def _is_unknown(quoted: str, known: set[str]) -> bool:
    """Return whether a text in backticks is an identifier of several words, of which one stands nowhere."""
    is_identifier = re.fullmatch(r"[A-Za-z_][\w.]*(?:\(\))?", quoted) and not quoted.endswith("_")
    if not is_identifier or not ("_" in quoted or re.search(r"[a-z][A-Z]", quoted)):
        return False
    return not all(known.intersection(_forms(part)) for part in re.findall(r"[A-Za-z_]\w+", quoted))


def _forms(name: str) -> set[str]:
    """Return the forms in which the code may write a name: fields in snake case, metrics without prefix and suffix."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    metric = name.removesuffix("_bucket")
    return {name, snake, metric, metric.removeprefix("quartermaster_")}


if __name__ == "__main__":
    main()
