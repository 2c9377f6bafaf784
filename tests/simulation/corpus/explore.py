"""`make explore SEEDS=1000`: how many seeds the bugs of the corpus need; writes docs/testing.md."""

from __future__ import annotations

import dataclasses
import sys

from cases import CASES
from test_corpus import PAGE, found

_BEGIN, _END = "<!-- corpus -->\n", "<!-- end of corpus -->\n"
_POLICIES = ("io", "shuffle", "pct:3")


def main(seeds: int) -> int:
    """Takes the figures; 1 where a right version has failed, or a bug was not found."""
    failed = False
    rows = [
        "| bug | policy of its test | " + " | ".join(f'`"{each}"`' for each in _POLICIES) + " |",
        "|---|---|" + "---:|" * len(_POLICIES),
    ]
    for case in CASES:
        needed = []
        for policy in _POLICIES:
            result = found(dataclasses.replace(case, policy=policy), False, seeds)
            needed.append("–" if result is None else str(result[0] + 1))
            failed = failed or (policy == case.policy and result is None)
        rows.append(f'| {case.name} | `"{case.policy}"` | {" | ".join(needed)} |')
        print(rows[-1], flush=True)
        if (right := found(case, True, seeds)) is not None:
            print(f"The right version fails with seed {right[0]}: {right[1]!r}")
            failed = True
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join(rows)
    PAGE.write_text(f"{before}{_BEGIN}\n{table}\n\n{_END}{after}")
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
