"""A lint of dense C: `python tools/lint_style.py [FILE_OR_FOLDER...]`.

Without arguments it reads the paths listed in LINTED of lint_c.py.

Every rule forbids a construct that the compiler accepts and that a reader has to take apart:

    line-length            a line of more than 100 columns
    nested-conditional     two or more `?:` in one statement
    joined-initialisers    one declaration that initialises two or more variables
    comma-statement        a comma operator, in a statement or in parentheses
    assignment-in-condition  an assignment, `++` or `--` in the condition of an if, a while or a do
    boolean-arithmetic     a comparison that is added or subtracted: `n -= n > 0`

Exemptions are comments, as in lint_c.py: `lint: allow joined-initialisers: REASON`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import lint_c
from lint_c import Function, Hits, Rules, Source, closing
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


RULES: Rules = {
    "line-length": line_length,
    "nested-conditional": nested_conditional,
    "joined-initialisers": joined_initialisers,
    "comma-statement": comma_statement,
    "assignment-in-condition": assignment_in_condition,
    "boolean-arithmetic": boolean_arithmetic,
}


if __name__ == "__main__":
    sys.exit(lint_c.main(RULES, {}))
