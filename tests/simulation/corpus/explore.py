"""`make explore SEEDS=1000`: how many seeds the bugs of the corpus need; writes docs/testing.md."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "support"))

from cases import CASES
from test_corpus import PAGE, found

_BEGIN, _END = "<!-- corpus -->\n", "<!-- end of corpus -->\n"
_POLICIES = ("io", "shuffle", "pct:3")


def main(seeds: int) -> int:
    """Takes the figures; 1 where a right version has failed, or a bug was not found."""
    failed = False
    rows = [
        "| bug | policy of its test | seconds | "
        + " | ".join(f'`"{each}"`' for each in _POLICIES)
        + " |",
        "|---|---|" + "---:|" * (1 + len(_POLICIES)),
    ]
    for case in CASES:
        needed, seconds = [], "–"
        for policy in _POLICIES:
            began = time.process_time()
            result = found(dataclasses.replace(case, policy=policy), False, seeds)
            needed.append("–" if result is None else str(result[0] + 1))
            if policy == case.policy:
                seconds = f"{time.process_time() - began:.2f}"
            failed = failed or (policy == case.policy and result is None)
        rows.append(f'| {case.name} | `"{case.policy}"` | {seconds} | {" | ".join(needed)} |')
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
