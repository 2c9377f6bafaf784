"""The record of the memory that Go's runtime has mapped, which a forked child unmaps.

golib/runtime_mapped_memory.c is compiled alone; the programs call its functions in place of
runtime/cgo.
"""

from __future__ import annotations

from pathlib import Path

import ended
import pytest

from .conftest import ROOT, Compile

SCENARIOS = Path(__file__).with_name("mapped_memory_scenarios.py")


@pytest.fixture(scope="module")
def library(native: Path, compile_shared: Compile) -> Path:
    source = native / "mapped_memory_alone.c"
    source.write_text(
        f"""#include "{ROOT}/pybridge/golib/runtime_mapped_memory.c"
#define EXPORT __attribute__((visibility("default")))
EXPORT void *go_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
EXPORT void *go_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{{
    return __wrap_mmap(at, size, protection, flags, fd, offset);
}}
EXPORT int go_munmap(void *at, size_t size);
EXPORT int go_munmap(void *at, size_t size) {{ return __wrap_munmap(at, size); }}
EXPORT int unmap(void);
EXPORT int unmap(void) {{ return unmap_memory(); }}
""",
        encoding="utf-8",
    )
    return compile_shared(native / "mapped_memory.so", source, "-Wl,--wrap=mmap,--wrap=munmap")


@pytest.mark.parametrize("name", ended.scenarios(SCENARIOS))
def test_record_of_mapped_memory(name: str, library: Path) -> None:
    ended.passes(SCENARIOS, name, library)
