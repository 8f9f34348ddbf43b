"""Under pytest, every tensor has the shape that its name ends in.

In the modules of CHECKED, a parameter, a local variable or a dataclass's field named `logp_BT` must
have two dimensions. Within one call (or one object) a letter is one size wherever it occurs, and a
digit is that very size: `mask_BT` and `weight_BT` are equally large, `sum_B1` is a column. The
letters' legend is in rlhf_lab/types/data.py.

The checks are put into the modules' syntax trees when pytest imports them. Runs pay nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

CHECKED = (
    *("rlhf_lab.algos", "rlhf_lab.models", "rlhf_lab.training", "rlhf_lab.types.data"),
    *("rlhf_lab.rollout.generators.draw", "rlhf_lab.models.layer_stack"),
)
SHAPED = re.compile(r"[a-z]\w*_([A-Z][A-Z0-9]*)")
CHECK, SIZES = "check_shape_name", "sizes_of_shape_names"


class WrongShape(AssertionError):
    """A tensor has another shape than its name says."""


def check(sizes: dict[str, int], name: str, value: Any) -> None:
    """Compare a tensor with its name's suffix, and with the sizes that the letters have so far."""
    letters, shape = name.rpartition("_")[2], getattr(value, "shape", None)
    if shape is None:  # an optional tensor that is not there
        return
    is_right = len(letters) == len(shape)
    for letter, size in zip(letters, shape, strict=False):
        expected = int(letter) if letter.isdigit() else sizes.setdefault(letter, size)
        is_right = is_right and size == expected
    if not is_right:
        raise WrongShape(f"{name} has shape {tuple(shape)}; sizes so far: {sizes}")


class Checks(ast.NodeTransformer):
    """Puts a call of `check` behind every assignment to a name with a shape, and one for each
    parameter in front of a function's body.

    depth: of loops. Letters that an iteration binds are forgotten at its end.
    """

    depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        outer, self.depth = self.depth, 0
        self.generic_visit(node)
        parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        first = int(ast.get_docstring(node) is not None)
        node.body[first:first] = [*statements(f"{SIZES}0 = {{}}"), *self.checks(parameters)]
        self.depth = outer
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.depth += 1
        self.generic_visit(node)
        scope = statements(f"{SIZES}{self.depth} = dict({SIZES}{self.depth - 1})")
        node.body = [*scope, *self.checks([node.target]), *node.body]
        self.depth -= 1
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """A dataclass checks its tensors when it is made."""
        annotated = (x.target for x in node.body if isinstance(x, ast.AnnAssign))
        fields = [target.id for target in annotated if isinstance(target, ast.Name)]
        node.body = [self.visit(x) if isinstance(x, ast.FunctionDef) else x for x in node.body]
        if node.decorator_list and any(map(SHAPED.fullmatch, fields)):
            (made,) = statements(f"def __post_init__(self): {SIZES}0 = {{}}")
            made.body += [call for field in fields for call in self.call(field, f"self.{field}")]
            node.body.append(made)
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return [node, *self.checks(node.targets)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        return [node, *self.checks([node.target] if node.value else [])]

    def checks(self, targets: Iterable[ast.AST]) -> list[ast.stmt]:
        """Checks of all names that are bound in the targets of an assignment, or of parameters."""
        nodes = [x for target in targets for x in ast.walk(target)]
        names = [x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        names += [x.arg for x in nodes if isinstance(x, ast.arg)]
        return [call for name in names for call in self.call(name, name)]

    def call(self, name: str, value: str) -> list[Any]:
        text = f"{CHECK}({SIZES}{self.depth}, {name!r}, {value})"
        return statements(text) if SHAPED.fullmatch(name) else []


def statements(text: str) -> list[Any]:
    return ast.parse(text).body


class Loader(SourceFileLoader):
    """Compiles a module with the checks in it. Nothing is read from or written to __pycache__."""

    def get_code(self, fullname: str) -> CodeType:
        tree = Checks().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[CHECK] = check
        super().exec_module(module)


class Finder(MetaPathFinder):
    """Hands the modules of CHECKED to `Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not f"{name}.".startswith(tuple(f"{checked}." for checked in CHECKED)):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = Loader(name, spec.origin)
        return spec


def install() -> None:
    """Check what is imported from now on."""
    sys.meta_path.insert(0, Finder())
