"""What the text of a module says, read with `ast`: what it imports, what it mentions, the strings in it."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache


@cache
def tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(text)))


@cache
def imports(text: str, module: str) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything imported; `from a import b` is a.b, which may be a module or a name in one."""
    return tuple(_imports(text, module))


def _imports(text: str, module: str) -> Iterator[tuple[int, str]]:
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _dotted(node.func, {}) in (
            "importlib.import_module",
            "import_module",
            "__import__",
        ):
            yield from (
                (node.lineno, arg.value)
                for arg in node.args[:1]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


@cache
def mentions(text: str, module: str) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything imported, reached with a dot or fetched by getattr, whatever it is called here."""
    return (*imports(text, module), *_reached(text))


def _reached(text: str) -> Iterator[tuple[int, str]]:
    origins: dict[str, str] = {}
    for node in nodes(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origins[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes(text):
        if isinstance(node, ast.Attribute):
            yield node.lineno, _dotted(node, origins)
        elif isinstance(node, ast.Call) and _dotted(node.func, {}) == "getattr" and len(node.args) > 1:
            receiver, wanted = node.args[:2]
            if isinstance(wanted, ast.Constant) and isinstance(wanted.value, str):
                yield node.lineno, f"{_dotted(receiver, origins)}.{wanted.value}"


def _dotted(node: ast.AST, origins: Mapping[str, str]) -> str:
    """`d.datetime.now` as `datetime.datetime.now`; whatever is no name (a call, an index) becomes `?`."""
    if isinstance(node, ast.Name):
        return origins.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, origins)}.{node.attr}"
    return "?"


@cache
def literals(text: str) -> tuple[tuple[int, str], ...]:
    """Every string that is not a docstring: prose may speak of what code may not do."""
    prose = {
        id(node.body[0].value)
        for node in nodes(text)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return tuple(
        (node.lineno, node.value)
        for node in nodes(text)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    )
