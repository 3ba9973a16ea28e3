import pytest

import tightfit as tf_


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("8GiB", 8 << 30), ("8G", 8 << 30), ("1.5GB", 1_500_000_000), ("64 MiB", 64 << 20), ("100", 100), ("1_000 kB", 10**6), (77, 77), ("7 bytes", 7)],
)
def test_sizes(text, bytes_):
    assert tf_.parse_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "1.5", "8 Gb/s", "1,5G", "99999999T", True, 1.5, None, 0, -3, "ib", "3 iB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError):
        tf_.parse_bytes(text)


def test_words():
    assert [tf_.format_bytes(n) for n in (512, 1536, 8 << 30)] == ["512 bytes", "1.5 KiB", "8.0 GiB"]
