"""Writes the tests of single operators that come with ONNX: `python node_tests.py FOLDER`.

Then `TIGHTFIT_ONNX_NODES=FOLDER cargo test --release --lib onnx::node_tests -- --nocapture` runs them.
"""

import pathlib
import sys

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def main():
    folder = pathlib.Path(sys.argv[1])
    for case in collect_testcases(None):
        # Functions in line are the same tests once more.
        if case.model is None or "_expanded" in case.name or not case.data_sets:
            continue
        target = folder / case.name
        data = target / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        onnx.save(case.model, target / "model.onnx")
        inputs, outputs = case.data_sets[0]
        for kind, values in [("input", inputs), ("output", outputs)]:
            for index, value in enumerate(values):
                path = data / f"{kind}_{index}.pb"
                if isinstance(value, onnx.TensorProto):
                    path.write_bytes(value.SerializeToString())
                elif hasattr(value, "dtype") and value.dtype != object:
                    path.write_bytes(numpy_helper.from_array(value).SerializeToString())


main()
