import numpy as np
import pytest

import tightfit as tf_


def test_a_plan_is_within_its_budget_and_says_so():
    free = tf_.plan("mnist-cnn", batch=64)
    plan = tf_.plan("mnist-cnn", batch=64, budget="30MiB")
    assert plan.fits and plan.peak_bytes <= 30 << 20 < free.peak_bytes == plan.unconstrained_peak_bytes
    assert plan.predicted_step_ms >= free.predicted_step_ms > 0 and plan.overhead >= 0
    assert sum(plan.micro_batch_sizes) == 64 and plan.micro_batches == len(plan.micro_batch_sizes)
    assert "budget" in repr(plan) and "30.0 MiB" in repr(plan) and "costs" in repr(plan)


def test_what_is_infeasible_says_what_would_do():
    with pytest.raises(tf_.InfeasibleError) as raised:
        tf_.plan("mnist-cnn", batch=64, budget="1MiB")
    least = raised.value.minimum_budget_bytes
    assert raised.value.budget_bytes == 1 << 20 < least
    assert isinstance(raised.value, ValueError) and str(raised.value)
    assert tf_.plan("mnist-cnn", batch=64, budget=least).peak_bytes <= least


def test_settings_change_plans():
    sgd, adam = (tf_.plan("mnist-mlp", batch=32, optimizer=name) for name in ("sgd", "adam"))
    assert sgd.state_bytes < adam.state_bytes
    assert tf_.plan("mnist-mlp", 32, precision="bf16").peak_bytes < adam.peak_bytes
    assert tf_.plan("mnist-mlp", 32, micro_batches=4).micro_batches == 4
    cpu = tf_.plan("mnist-mlp", 32, device="cpu")
    assert cpu.device == "cpu" and "cpu" in repr(cpu)


def test_a_compiled_model_brings_its_settings(mlp):
    model = mlp(optimizer="sgd", budget="5MiB", device=None)
    assert tf_.plan(model, batch=32).budget_bytes == 5 << 20
    assert tf_.plan(model, batch=32, budget="6MiB").budget_bytes == 6 << 20
    assert tf_.plan(model, batch=32).state_bytes < tf_.plan(model, batch=32, optimizer="adam").state_bytes


def test_advice():
    advice = tf_.advise("mnist-cnn", batch=64, budget="30MiB")
    assert not advice.fits and advice.unchanged["fits"] and advice.unchanged["peak_bytes"] <= 30 << 20
    assert any("batch" in remedy["name"] for remedy in advice.remedies) and "best" in repr(advice)


def test_what_there_is():
    assert "resnet50" in tf_.models()
    devices = tf_.devices()
    assert sum(device["default"] for device in devices) == 1
    assert any(device["device"] == "cpu" and device["total_bytes"] > 0 for device in devices)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("mnist-cn", 64), ValueError),
        (("mnist-cnn", 0), ValueError),
        (("mnist-cnn", 2.5), ValueError),
        (("nowhere.toml", 64), OSError),
        ((np.zeros(3), 64), TypeError),
        (("mnist-cnn", 64, "lots"), ValueError),
    ],
)
def test_bad_requests(arguments, error):
    with pytest.raises(error):
        tf_.plan(*arguments)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adamant"},
        {"loss": "sparse"},
        {"precision": "f8"},
        {"device_class": "toaster"},
        {"device": "no such device"},
        {"clip_norm": float("nan")},
        {"micro_batches": 999},
    ],
)
def test_bad_settings(settings):
    with pytest.raises(ValueError):
        tf_.plan("mnist-mlp", 32, **settings)
    with pytest.raises(TypeError, match="no setting"):
        tf_.plan("mnist-mlp", 32, bugdet="1GiB")
