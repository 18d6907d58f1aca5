"""Change the package harmfully, one place at a time, and say which of the changes the tests let pass.

python -m retention_assets_tests.mutants --base main --count 40
python -m retention_assets_tests.mutants --whole --count 200 --seed 7

Belongs here: which changes there are, which are drawn, and which tests are run for a module. The changes are made in a copy of the
checkout. Not every change that passes is a fault (a batch of another size, two equal ways): a person reads them.
"""

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = "retention_assets", "retention_assets_tests"
SEED = 47
# Seconds after which tests count as hanging, by which a change is caught as well.
PATIENCE = 900

_SWEEP = ("sweep/test_sharing.py", "sweep/test_undo.py", "sweep/test_cycles.py")
_SHARED = (*_SWEEP, "people/test_trash.py")
# Tests by the folder of the changed module (the longest that fits), the quickest first.
RELATED: Mapping[str, Sequence[str]] = {
    "": (".",),
    "dagster": ("dagster", "sweep"),
    "demo": ("demo",),
    "evaluation": ("evaluation", "people", "frames"),
    "exchange": ("exchange", "stores/files", "people"),
    "frames": ("frames", "oracle", "stores/delta/test_cases.py", *_SWEEP, "evaluation"),
    "ledger": ("ledger", *_SHARED, "people", "sweep"),
    "people": ("people", "sweep"),
    "pipeline": ("pipeline", "dagster", "people"),
    "policy": ("policy", "people"),
    "render": ("render", "people"),
    "settings": ("settings", "people"),
    "sql": ("sql", "stores/records", "people"),
    "stores": ("stores", *_SHARED, "people"),
    "stores/delta": ("stores/delta", *_SHARED),
    "stores/iceberg": ("stores/iceberg", *_SHARED),
    "stores/objects": ("stores/objects", *_SWEEP, "people/test_plan_of_objects.py"),
    "stores/places": ("stores/places", "people/test_moved_roots.py", "people/test_trash.py", "stores/files", *_SWEEP),
    "sweep": (*_SWEEP, "sweep", "people/test_moved_roots.py", "people/test_trash.py", "stores/delta", "people"),
}
# The quick tests first.
_STAGES = ("not spark and not long", "spark or long")
_LEFT_OUT = "matrix or program or cluster or screen"

_TWINS: Sequence[tuple[type[ast.AST], type[ast.AST]]] = (
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot), (ast.And, ast.Or),
    (ast.BitAnd, ast.BitOr), (ast.Add, ast.Sub),
)  # fmt: skip
_SWAPS: Mapping[type[ast.AST], type] = dict([*_TWINS, *((two, one) for one, two in _TWINS)])
# flags of dataclasses and of zip
_GUARDS = {"frozen", "strict", "slots", "kw_only", "repr"}
# from here on a number is a limit, and one more does no harm
_LIMIT = 50


@dataclass(frozen=True)
class Mutant:
    """A module with one place changed."""

    module: str
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} `{self.before}` -> `{self.after}`"


def places(tree: ast.Module, lines: Container[int]) -> list[ast.AST]:
    """Return the nodes of these lines that can be changed, always in the same order."""
    says_nothing = {id(node) for node in _without_harm(tree)}
    nodes = (node for node in ast.walk(tree) if getattr(node, "lineno", None) in lines and id(node) not in says_nothing)
    return [node for node in nodes if _can_change(node)]


def _without_harm(tree: ast.Module) -> Iterator[ast.AST]:
    # any import finds a changed annotation, and no test a flag that only guards against mistakes
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            yield from ast.walk(annotation) if annotation else ()
        if isinstance(node, ast.keyword) and node.arg in _GUARDS:
            yield node.value


def _can_change(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=int(value)) if value >= _LIMIT:
            return False
        case ast.Compare(ops=[operator, *_]) | ast.BoolOp(op=operator) | ast.BinOp(op=operator):
            return type(operator) in _SWAPS
        case ast.Constant(value=value):
            return type(value) in (bool, int)
        case ast.UnaryOp(op=operator):
            return isinstance(operator, ast.Not | ast.Invert)
    return isinstance(node, ast.If | ast.AugAssign)


def _change(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops[0] = _SWAPS[type(node.ops[0])]()
        case ast.BoolOp() | ast.BinOp():
            node.op = _SWAPS[type(node.op)]()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.UnaryOp():
            node.operand = ast.UnaryOp(node.op, node.operand)
        case ast.If():
            node.test = ast.Constant(False)
        case ast.AugAssign():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.BitAnd()


def mutant(module: str, text: str, lines: Container[int], number: int) -> Mutant:
    """Make the change at place `number` of these lines."""
    tree = ast.parse(text)
    node = places(tree, lines)[number]
    before, line = ast.unparse(node), getattr(node, "lineno", 0)
    _change(node)
    before, after = (said.partition("\n")[0][:80] for said in (before, ast.unparse(node)))
    return Mutant(module, line, before, after, ast.unparse(tree))


def draw(modules: Mapping[str, Container[int]], count: int, seed: int) -> Iterator[Mutant]:
    """Draw `count` changes of these lines of modules, each place equally likely."""
    texts = {module: (ROOT / module).read_text("utf-8") for module in modules}
    counts = {module: len(places(ast.parse(text), modules[module])) for module, text in texts.items()}
    every = [(module, number) for module, most in counts.items() for number in range(most)]
    random.Random(seed).shuffle(every)
    return (mutant(module, texts[module], modules[module], number) for module, number in every[:count])


def changed_lines(base: str) -> dict[str, set[int]]:
    """Return lines of the package that are new since a commit, uncommitted ones included."""
    found: dict[str, set[int]] = {}
    for name in _git("diff", "--name-only", "--diff-filter=d", base, "--", f"{PACKAGE}/*.py").split():
        hunks = re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))? @@", _git("diff", "--unified=0", base, "--", name), re.MULTILINE)
        found[name] = {int(first) + number for first, size in hunks for number in range(int(size or 1))}
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def related(module: str) -> list[str]:
    inside = module.removeprefix(f"{PACKAGE}/")
    place = max((place for place in RELATED if not place or inside.startswith(f"{place}/")), key=len)
    return [f"{TESTS}/{name}" for name in RELATED[place]]


def caught(tree: Path, mutant: Mutant, tests: Sequence[str]) -> str | None:
    """Apply a change, run tests, and take it back; return the first test that fails, None if none does."""
    file = tree / mutant.module
    text = file.read_text("utf-8")
    _write(file, mutant.text)
    try:
        return next(filter(None, (_failed(tree, tests, stage) for stage in _STAGES)), None)
    finally:
        _write(file, text)


def _write(module: Path, text: str) -> None:
    """Write a module that Python compiles anew: of the same second and size, it would take what it compiled before."""
    module.write_text(text, "utf-8")
    Path(cache_from_source(module)).unlink(missing_ok=True)


def _failed(tree: Path, tests: Sequence[str], stage: str) -> str | None:
    pytest = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", "-p", "no:cacheprovider"]
    command = [*pytest, "-m", f"({stage}) and not ({_LEFT_OUT})", *tests]
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE} s"
    # 5: none of these tests is of this stage
    if done.returncode in (0, 5):
        return None
    lines = done.stdout.splitlines()
    return next((line for line in lines if line.startswith(("FAILED", "ERROR"))), f"pytest ended with {done.returncode}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a change passed."""
    parser = argparse.ArgumentParser(prog=f"python -m {TESTS}.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="main", help="the commit since which lines count as changed (main)")
    parser.add_argument("--whole", action="store_true", help="all lines of the package, whatever has changed")
    parser.add_argument("--count", type=int, default=40, help="how many changes (40)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"which of them ({SEED})")
    options = parser.parse_args(arguments)
    tracked = _git("ls-files").splitlines()
    package = {name: range(1, 10_000) for name in tracked if name.startswith(f"{PACKAGE}/") and name.endswith(".py")}
    modules: Mapping[str, Container[int]] = package if options.whole else changed_lines(options.base)
    passed = 0
    with tempfile.TemporaryDirectory(prefix="retention-mutants-") as name:
        tree = Path(name)
        for file in (name for name in tracked if (ROOT / name).is_file()):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_bytes((ROOT / file).read_bytes())
        for number, one in enumerate(draw(modules, options.count, options.seed), 1):
            test = caught(tree, one, related(one.module))
            passed += test is None
            sys.stdout.write(f"{number} {'PASSED' if test is None else 'caught'} {one} {test or ''}\n")
            sys.stdout.flush()
        sys.stdout.write(f"{passed} passed\n")
    return int(passed > 0)


if __name__ == "__main__":
    sys.exit(main())
