"""The table of rules in docs/model/README.md: rule, line of the model, macro, function.

Owns that table between its two comments; everything else in the page is written by hand.
"""

import re

from _check_model.rules import RULES, Rule
from _check_model.spin import MODELS, ModelError

PAGE = MODELS / "README.md"
_BEGIN, _END = "<!-- rules: written by tools/check-model --table -->", "<!-- end of rules -->"


def write_table() -> None:
    """Write the table anew."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ModelError(f"{PAGE} has lost the comments around its table")
    PAGE.write_text(f"{before}{begin}\n\n{_table()}\n{end}{after}", encoding="utf-8")


def _table() -> str:
    head = "| rule | model | taken away by | code |\n| --- | --- | --- | --- |\n"
    return head + "".join(_row(rule) for rule in RULES)


def _row(rule: Rule) -> str:
    code = ", ".join(f"`{function}`" for function in rule.functions)
    return f"| {rule.text} | {rule.file}.pml:{_line_of(rule)} | `NO_{rule.name.upper()}` | {code} |\n"


def _line_of(rule: Rule) -> int:
    lines = (MODELS / f"{rule.file}.pml").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if re.search(rf"RULE [a-z_0-9, ]*\b{rule.name}\b", line):
            return number
    raise ModelError(f"{rule.file}.pml has no comment RULE {rule.name}")
