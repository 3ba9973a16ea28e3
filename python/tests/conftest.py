"""What tests share. They train on the CPU, which is there everywhere; TIGHTFIT_TEST_DEVICE names another device."""

import os
import signal

import numpy as np
import pytest

import tightfit as tf_

DEVICE = os.environ.get("TIGHTFIT_TEST_DEVICE", "cpu")

LAYERS = [
    {"kind": "linear", "out_features": 16},
    {"kind": "relu"},
    {"kind": "linear", "out_features": 3},
]


@pytest.fixture(autouse=True)
def ctrl_c_raises():
    """Also where the tests run in the background of a shell, which has Ctrl-C ignored there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def device():
    return DEVICE


@pytest.fixture
def points():
    """Points of four numbers, and which of three classes each is: by the largest of the first three."""
    random = np.random.default_rng(1)
    x = random.random((96, 4), dtype=np.float32)
    return x, x[:, :3].argmax(1).astype(np.int64)


@pytest.fixture
def mlp(device):
    """Makes a compiled model of two layers."""

    def make(**settings):
        model = tf_.Model.sequential(LAYERS, input_shape=[4])
        given = {"optimizer": {"kind": "adam", "lr": 0.02}, "loss": "sparse_categorical_crossentropy", "seed": 3, "device": device}
        model.compile(**{**given, **settings})
        return model

    return make
