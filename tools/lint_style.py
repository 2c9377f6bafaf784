"""A lint of dense C and repeated comments: `python tools/lint_style.py [FILE_OR_FOLDER...]`.

Without arguments it reads the paths listed in LINTED of lint_c.py.

Every rule forbids what the compiler accepts and a reader has to take apart, or reads twice:

    line-length            a line of more than 100 columns
    nested-conditional     two or more `?:` in one statement
    joined-initialisers    one declaration that initialises two or more variables
    comma-statement        a comma operator, in a statement or in parentheses
    assignment-in-condition  an assignment, `++` or `--` in the condition of an if, a while or a do
    boolean-arithmetic     a comparison that is added or subtracted: `n -= n > 0`
    exception-formula      a comment that says only that -1 or NULL means an exception
    function-comment       a second comment of a function, or none in the header that declares it

Exemptions are comments, as in lint_c.py: `lint: allow joined-initialisers: REASON`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import lint_c
from lint_c import Function, Hits, Rules, Source, Tree, TreeHits, TreeRules, closing
from lint_flow import Statement, split, statements_of

COLUMNS = 100


def all_statements(function: Function) -> Iterator[Statement]:
    """Statements of a body, nested ones after the statement that contains them."""
    waiting = list(statements_of(function.body))
    while waiting:
        statement = waiting.pop()
        yield statement
        waiting += statement.parts


def comma_parts(text: str) -> list[str]:
    """The text's parts between commas outside of brackets."""
    return [part for part, _ in split(text, 0, ",")]


_DECLARATION = re.compile(
    r"\s*(?!return\b|goto\b|else\b)(?:(?:const|static|unsigned|struct|enum|volatile)\s+)*"
    r"\w+(?:\s+const)?(?:\s+|\s*\*[\s*]*)\w+\s*(?:\[[^\]]*\]\s*)*(?:=(?!=).*)?",
    re.DOTALL,
)
_ASSIGNS = re.compile(r"(?<![=!<>])=(?!=)|\+\+|--")


def is_declaration(text: str) -> bool:
    """Whether an expression statement declares variables."""
    return _DECLARATION.fullmatch(comma_parts(text)[0]) is not None


def line_length(source: Source) -> Hits:
    """Lines of the text, comments included, that are longer than COLUMNS."""
    offset = 0
    for line in source.text.split("\n"):
        if len(line.expandtabs(8)) > COLUMNS:
            yield offset, f"the line has {len(line.expandtabs(8))} columns"
        offset += len(line) + 1


def nested_conditional(source: Source) -> Hits:
    """Statements and conditions with two or more conditional operators."""
    for function in source.functions:
        for statement in all_statements(function):
            if statement.text.count("?") > 1:
                yield function.start + statement.start, "two or more ?: in one statement"


def joined_initialisers(source: Source) -> Hits:
    """Declarations of two or more variables with initialisers."""
    for function in source.functions:
        for statement in all_statements(function):
            if statement.kind == "expression" and is_declaration(statement.text):
                parts = comma_parts(statement.text)
                if sum(re.search(r"(?<![=!<>])=(?!=)", part) is not None for part in parts) > 1:
                    yield function.start + statement.start, "declare each variable by itself"


def comma_statement(source: Source) -> Hits:
    """Comma operators: of a whole statement, and in parentheses that are not a call's."""
    inner = re.compile(r"(?:[=?:(&|!<>+-]|\breturn)\s*(\()")
    for function in source.functions:
        for statement in all_statements(function):
            if statement.kind not in ("expression", "return"):
                continue
            text = statement.text
            joined = len(comma_parts(text)) > 1 and not is_declaration(text)
            for found in inner.finditer(text):
                inside = text[found.start(1) + 1 : closing(text, found.start(1))]
                joined = joined or len(comma_parts(inside)) > 1
            if joined:
                yield function.start + statement.start, "a statement for each part, not a comma"


def assignment_in_condition(source: Source) -> Hits:
    """Assignments and increments in conditions; a for's head is no condition."""
    for function in source.functions:
        for statement in all_statements(function):
            condition = statement.kind in ("if", "do", "loop") and ";" not in statement.text
            if condition and _ASSIGNS.search(statement.text):
                yield function.start + statement.start, "assign before the condition"


def boolean_arithmetic(source: Source) -> Hits:
    """Compound assignments whose right side is a comparison."""
    shape = re.compile(r"[-+*]=\s*\(?[\w>.\[\]-]+\s*(?:(?<!-)[<>]=?|[!=]=)\s*[\w>.-]+\)?\s*$")
    for function in source.functions:
        for statement in all_statements(function):
            if statement.kind == "expression" and shape.search(statement.text):
                yield function.start + statement.start, "write an if"


_FORMULA = re.compile(r"(?:-1|NULL),?[\s*]+with[\s*]+an[\s*]+exception[.,:;]")


def exception_formula(source: Source) -> Hits:
    """Comments that repeat support.h: -1 or NULL means that an exception is set."""
    for found in _FORMULA.finditer(source.text):
        yield found.start(), "-1 and NULL always mean an exception: say only what differs"


# A function's declaration in a header, and the end of a comment right above a definition, or above
# a declaration of a static function: clang-format puts the name of a defined function on its own
# line.
_DECLARED = re.compile(r"^(?!static\b|typedef\b)\w[\w *]*?\b(\w+)\((?=[^{}]*?\);)", re.MULTILINE)
_COMMENTED = re.compile(r"\*/\n(?:\w[\w *]*\n)+(\w+)\(")
_STATIC_COMMENTED = re.compile(r"\*/\nstatic\s[^;{}=]*\);")


def function_comment(tree: Tree) -> TreeHits:
    """Comments of functions that a header declares, above their definitions; and missing ones.

    The lines of a header without an empty line between them may share one comment.
    """
    declared = set()
    for source in tree.sources:
        if not source.path.endswith(".h"):
            continue
        for found in _DECLARED.finditer(source.code):
            declared.add(found[1])
            start = max(source.text.rfind("\n\n", 0, found.start()), 0)
            lines = source.text[start : found.start()]
            if "/*" not in lines:
                yield source, found.start(), f"{found[1]} has no comment"
    for source in tree.sources:
        if source.path.endswith(".h"):
            continue
        for found in _COMMENTED.finditer(source.text):
            if found[1] in declared:
                fault = f"the header has the comment of {found[1]}: put reasons into the body"
                yield source, found.start(1), fault
        for found in _STATIC_COMMENTED.finditer(source.text):
            yield source, found.end(), "put the comment above the definition"


RULES: Rules = {
    "line-length": line_length,
    "nested-conditional": nested_conditional,
    "joined-initialisers": joined_initialisers,
    "comma-statement": comma_statement,
    "assignment-in-condition": assignment_in_condition,
    "boolean-arithmetic": boolean_arithmetic,
    "exception-formula": exception_formula,
}
TREE_RULES: TreeRules = {"function-comment": function_comment}


if __name__ == "__main__":
    sys.exit(lint_c.main(RULES, TREE_RULES))
