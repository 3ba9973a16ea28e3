"""docs/python.md shows the scripts that are in python/examples."""

import difflib
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[1]
DOCS = PYTHON.parent / "docs" / "python.md"
SCRIPTS = [PYTHON / "examples" / name for name in ("keras_alone.py", "keras_trained_here.py")]


def test_the_scripts_of_the_docs_are_those_of_the_examples():
    text = DOCS.read_text()
    assert all(f"```python\n{script.read_text()}```" in text for script in SCRIPTS)


def test_a_script_of_keras_changes_in_five_lines_at_most():
    before, after = (script.read_text().splitlines() for script in SCRIPTS)
    added = [line for line in difflib.unified_diff(before, after, lineterm="", n=0) if line.startswith("+") and not line.startswith("+++")]
    assert 0 < len(added) <= 5, added
