import csv
import os
import signal
import threading
import time

import numpy as np
import pytest

import tightfit as tf_
from tightfit import callbacks as cb


class Recorder(tf_.Callback):
    def __init__(self):
        self.events = []

    def on_train_begin(self, logs=None):
        self.events.append("begin")

    def on_train_end(self, logs=None):
        self.events.append("end")

    def on_epoch_begin(self, epoch, logs=None):
        self.events.append(f"epoch {epoch}")

    def on_epoch_end(self, epoch, logs=None):
        self.events.append(f"/epoch {epoch} {'val_loss' in logs}")

    def on_train_batch_begin(self, batch, logs=None):
        self.events.append(f"batch {batch}")

    def on_train_batch_end(self, batch, logs=None):
        self.events.append(f"/batch {batch}")


@pytest.mark.parametrize("as_batches", [False, True])
def test_events_come_in_order(mlp, points, as_batches):
    x, y = points
    recorder = Recorder()
    data = ([(x[:48], y[:48]), (x[48:], y[48:])],) if as_batches else (x, y, 48)
    mlp().fit(*data, epochs=2, verbose=0, callbacks=[recorder], validation_data=(x, y))
    epoch = ["batch 0", "/batch 0", "batch 1", "/batch 1"]
    expected = ["begin", "epoch 0", *epoch, "/epoch 0 True", "epoch 1", *epoch, "/epoch 1 True", "end"]
    assert recorder.events == expected
    assert recorder.params["epochs"] == 2 and recorder.params["steps"] == 2


def test_callbacks_use_the_model_in_the_middle_of_a_fit(mlp, points):
    """What they look at does not change what is trained."""
    x, y = points
    seen = []

    class Looks(tf_.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((self.model.evaluate(x, y), self.model.predict(x[:7]).shape, len(self.model.get_weights())))

        def on_epoch_end(self, epoch, logs=None):
            with pytest.raises(RuntimeError, match="fit of this model is running"):
                self.model.fit(x, y, verbose=0)
            with pytest.raises(RuntimeError):
                self.model.compile(loss="mse")

    plain, looking = mlp(), mlp()
    expected = plain.fit(x, y, batch_size=32, epochs=3, verbose=0)
    found = looking.fit(x, y, batch_size=32, epochs=3, verbose=0, callbacks=Looks())
    assert found.history["loss"] == expected.history["loss"] and len(seen) == 9
    assert seen[0][0] != seen[-1][0] and seen[0][1:] == ((7, 3), 4)
    assert all(np.array_equal(values, plain.get_weights()[name]) for name, values in looking.get_weights().items())


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_epoch_begin", "on_train_batch_end", "on_train_batch_begin", "on_train_begin"])
def test_stop_training(mlp, points, hook):
    class Stops(tf_.Callback):
        pass

    setattr(Stops, hook, lambda self, *args: setattr(self.model, "stop_training", True))
    model = mlp()
    history = model.fit(*points, batch_size=16, epochs=9, verbose=0, callbacks=[Stops()])
    assert len(history.epoch) <= 1 and model.optimizer.iterations <= 6
    assert hook != "on_epoch_end" or (history.epoch == [0] and model.optimizer.iterations == 6)
    # It can go on.
    model.fit(*points, batch_size=16, epochs=1, verbose=0)


@pytest.mark.parametrize("hook", ["on_epoch_begin", "on_train_batch_end", "on_epoch_end"])
def test_what_a_callback_raises_comes_out(mlp, points, hook):
    class Fails(tf_.Callback):
        pass

    setattr(Fails, hook, lambda self, *args: 1 / 0)
    model = mlp()
    with pytest.raises(ZeroDivisionError):
        model.fit(*points, batch_size=16, epochs=5, verbose=0, callbacks=[Fails()])
    assert model.optimizer.iterations <= 6
    assert len(model.fit(*points, batch_size=16, epochs=1, verbose=0).epoch) == 1


def test_early_stopping_restores_the_best(mlp, points):
    x, y = points
    model = mlp(optimizer={"kind": "sgd", "lr": 40.0, "momentum": 0.9})
    stop = cb.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)
    history = model.fit(x, y, batch_size=32, epochs=40, verbose=0, callbacks=[stop], validation_data=(x, y))
    losses = history.history["val_loss"]
    assert len(losses) < 40 and stop.best == min(losses) and len(losses) == stop.best_epoch + 3
    assert model.evaluate(x, y, return_dict=True)["loss"] == pytest.approx(min(losses), rel=1e-5)
    with pytest.raises(ValueError, match="val_f2"):
        model.fit(x, y, epochs=1, verbose=0, callbacks=[cb.EarlyStopping("val_f2")])


def test_checkpoints_logs_and_rates(mlp, points, tmp_path):
    model = mlp(optimizer={"kind": "sgd", "lr": 1.0})
    rates = []
    callbacks = [
        cb.LearningRateScheduler(lambda epoch, lr: 0.5**epoch),
        cb.ModelCheckpoint(tmp_path / "w-{epoch:02d}-{loss:.2f}.safetensors"),
        cb.CSVLogger(tmp_path / "log.csv"),
        cb.LambdaCallback(on_epoch_begin=lambda epoch, logs: rates.append(model.optimizer.learning_rate)),
    ]
    history = model.fit(*points, batch_size=32, epochs=3, verbose=0, callbacks=callbacks)
    assert rates == [1.0, 0.5, 0.25] == history.history["learning_rate"]
    assert len(list(tmp_path.glob("w-0[123]-*.safetensors"))) == 3
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == history.history["loss"]
    assert model.optimizer.learning_rate == 0.25
    plateau = cb.ReduceLROnPlateau(monitor="loss", factor=0.1, patience=1, min_delta=100.0)
    model.fit(*points, batch_size=32, epochs=3, verbose=0, callbacks=[plateau])
    assert model.optimizer.learning_rate == pytest.approx(0.0025)


def test_initial_epoch(mlp, points):
    assert mlp().fit(*points, epochs=5, initial_epoch=3, verbose=0).epoch == [3, 4]
    assert mlp().fit(*points, epochs=3, initial_epoch=3, verbose=0).epoch == []


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("as_batches", [False, True])
def test_ctrl_c_ends_a_fit_and_keeps_whole_steps(mlp, points, as_batches):
    x, y = points
    model = mlp()
    model.fit(x, y, batch_size=32, epochs=1, verbose=0)
    started = threading.Event()

    def interrupt():
        started.wait(60)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = cb.LambdaCallback(on_epoch_begin=lambda epoch, logs: started.set())
    data = ([(x[:32], y[:32])] * 3,) if as_batches else (x, y, 32)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, epochs=10**6, verbose=0, callbacks=[begin])
    thread.join()
    assert time.monotonic() - start < 30
    steps = model.optimizer.iterations
    assert steps > 3 and all(np.isfinite(values).all() for values in model.get_weights().values())
    # The same model, where the same number of steps was asked for, is the same.
    if not as_batches:
        again = mlp()
        again.fit(x, y, batch_size=32, epochs=1, verbose=0)
        stop = cb.LambdaCallback(
            on_train_batch_end=lambda batch, logs: setattr(again, "stop_training", again.optimizer.iterations >= steps)
        )
        again.fit(x, y, batch_size=32, epochs=10**6, verbose=0, callbacks=[stop])
        assert again.optimizer.iterations == steps
        expected = again.get_weights()
        assert all(np.array_equal(values, expected[name]) for name, values in model.get_weights().items())
    assert model.fit(x, y, epochs=1, verbose=0).epoch == [0]


def test_other_threads_run_meanwhile(device):
    """They run while a step does: one large step takes as long as many of their turns."""
    model = tf_.Model.sequential([{"kind": "linear", "out_features": 512}, {"kind": "relu"}, {"kind": "linear", "out_features": 8}], [512])
    model.compile(loss="cross-entropy", device=device)
    x, y = np.zeros((512, 512), np.float32), np.zeros(512, np.int64)
    ticks, is_over = [], threading.Event()

    def count():
        while not is_over.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.0005)

    model.train_on_batch(x, y)
    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    model.train_on_batch(x, y)
    end = time.monotonic()
    is_over.set()
    thread.join()
    during = [tick for tick in ticks if begin < tick < end]
    # Were the interpreter held, there would be hardly any.
    assert len(during) > 3, (len(during), end - begin)


def test_a_model_frees_its_memory_when_it_goes(mlp, points):
    model = mlp()
    model.fit(*points, verbose=0)
    before = threading_count()
    del model
    assert threading_count() < before


def threading_count():
    """Threads of the process, Python's and others."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else pytest.skip("Linux alone says so")


@pytest.mark.parametrize("as_batches", [False, True])
def test_hooks_of_evaluations_and_predictions(mlp, points, as_batches):
    x, y = points
    heard = []
    hooks = [f"on_{what}_{when}" for what in ("test", "predict") for when in ("begin", "end")]
    callback = cb.LambdaCallback(**{hook: lambda logs, hook=hook: heard.append((hook, dict(logs))) for hook in hooks})
    model = mlp()
    data = [(x[:32], y[:32])] * 2 if as_batches else (x, y)
    history = model.fit(x, y, epochs=2, validation_data=data, callbacks=[callback], verbose=0).history
    assert [hook for hook, _ in heard] == ["on_test_begin", "on_test_end"] * 2
    assert heard[-1][1]["loss"] == history["val_loss"][-1]
    heard.clear()
    loss, _ = model.evaluate(x, y, callbacks=callback)
    model.predict(x, callbacks=[callback])
    assert [hook for hook, _ in heard] == hooks and heard[1][1]["loss"] == loss
    with pytest.raises(ValueError, match="there are no batches"):
        model.evaluate(iter(()))

    def fails(logs):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.fit(x, y, validation_data=(x, y), callbacks=[cb.LambdaCallback(on_test_end=fails)], verbose=0)
    assert model.fit(x, y, verbose=0).epoch == [0]
