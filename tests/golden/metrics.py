"""Writes metrics.json: metrics of drawn predictions from scikit-learn, and perplexity from PyTorch.

    python metrics.py

Each case has the format of its samples, predictions and targets sample by sample, weights or none, and what each metric makes of
them. Predictions are float32; everything is computed in float64. Samples of weight 0 and positions with an ignored label are
left out before scikit-learn sees the rest.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn import metrics as sk

from common import check_version

FOLDER = Path(__file__).parent
AVERAGES = ["macro", "micro", "weighted", "none"]
COUNTED = {
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "f1": sk.f1_score,
    "iou": sk.jaccard_score,
    "dice": sk.f1_score,
}


class Case:
    def __init__(self, name, shape, predictions, labels=None, values=None, weights=None, scores="logits", **format):
        self.name, self.scores = name, scores
        self.weights = None if weights is None else np.asarray(weights, np.float64)
        self.predictions = np.asarray(predictions, np.float32).reshape(len(predictions), *shape)
        self.labels = None if labels is None else np.asarray(labels).reshape(len(predictions), -1)
        self.values = None if values is None else np.asarray(values, np.float32).reshape(self.predictions.shape)
        self.format = {"shape": list(shape), "scores": scores, **format}
        self.expected = []

    def positions(self, array):
        """`[samples, positions, channels]`."""
        n = len(array)
        if self.format.get("classes_last"):
            return array.reshape(n, -1, array.shape[-1]).astype(np.float64)
        return array.reshape(n, array.shape[1], -1).transpose(0, 2, 1).astype(np.float64)

    def rows(self):
        """Scores `[rows, channels]`, targets and weights of all positions that count."""
        scores = self.positions(self.predictions)
        weights = np.ones(len(scores)) if self.weights is None else self.weights
        weights = np.repeat(weights, scores.shape[1])
        scores = scores.reshape(-1, scores.shape[2])
        if self.labels is not None:
            targets = self.labels.reshape(-1)
            counts = targets != self.format.get("ignored", -1)
        else:
            targets = self.positions(self.values).reshape(scores.shape)
            counts = np.ones(len(scores), bool)
        counts &= weights > 0
        return scores[counts], targets[counts], weights[counts]

    def add(self, kind, value, **settings):
        if isinstance(value, np.ndarray):
            value = value.tolist()
        elif not isinstance(value, list):
            value = float(value)
        self.expected.append({"metric": {"kind": kind, **settings}, "value": value})

    def limit(self, threshold):
        if self.scores == "logits":
            return np.log(threshold / (1 - threshold))
        return threshold if self.scores == "probabilities" else np.log(threshold)

    def counts(self, predicted, actual, weights, classes, **settings):
        """All figures of counts; classes that are nowhere have none."""
        self.add("accuracy", sk.accuracy_score(actual, predicted, sample_weight=weights), **settings)
        several = predicted.ndim > 1
        seen = predicted.any(0) | actual.any(0) if several else np.isin(range(classes), np.concatenate([predicted, actual]))
        for kind, figure in COUNTED.items():
            for average in AVERAGES:
                labels = None if several else list(range(classes)) if average == "none" else np.flatnonzero(seen)
                given = {"labels": labels, "sample_weight": weights, "zero_division": 0}
                value = figure(actual, predicted, average=None if average == "none" else average, **given)
                if average == "none":
                    value = [float(v) if is_seen else None for v, is_seen in zip(value, seen)]
                self.add(kind, value, average=average, **settings)

    def classes(self, ties=False):
        """All figures of classes of which one is right."""
        scores, targets, weights = self.rows()
        count = scores.shape[1]
        predicted, actual = scores.argmax(1), targets if targets.ndim == 1 else targets.argmax(1)
        self.counts(predicted, actual, weights, count)
        matrix = sk.confusion_matrix(actual, predicted, labels=list(range(count)), sample_weight=weights)
        self.add("confusion-matrix", matrix.astype(float))
        order = np.argsort(-scores, axis=1, kind="stable")
        for k in range(1, count):
            right = (order[:, :k] == actual[:, None]).any(1)
            if not ties and 1 < count - 1 and k > 1:
                of_sk = sk.top_k_accuracy_score(actual, scores, k=k, labels=list(range(count)), sample_weight=weights)
                assert abs(np.average(right, weights=weights) - of_sk) < 1e-12
            self.add("top-k", np.average(right, weights=weights), k=k)
        logits, target = torch.tensor(scores), torch.tensor(targets)
        # Logarithms and their exponentials would tell numbers apart that are equal.
        cross_entropy, nll_loss = torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss
        probabilities, losses = {
            "logits": lambda: (torch.softmax(logits, 1).numpy(), cross_entropy(logits, target, reduction="none")),
            # Relative to their sum, as the loss of probabilities has them.
            "probabilities": lambda: (scores, cross_entropy(logits.log(), target, reduction="none")),
            "log-probabilities": lambda: (np.exp(scores), nll_loss(logits, target, reduction="none")),
        }[self.scores]()
        self.add("perplexity", np.exp(np.average(losses.numpy(), weights=weights)))
        if count == 2:
            self.add("auc", sk.roc_auc_score(actual, probabilities[:, 1], sample_weight=weights))
            for kind, figure in COUNTED.items():
                self.add(kind, figure(actual, predicted, average="binary", sample_weight=weights), average="binary")
            return self
        one = [
            sk.roc_auc_score(actual == c, probabilities[:, c], sample_weight=weights) if (actual == c).any() else None
            for c in range(count)
        ]
        self.add("auc", one, average="none")
        if None not in one:
            for average in ("macro", "weighted", "micro"):
                given = {"multi_class": "ovr", "labels": list(range(count)), "sample_weight": weights}
                self.add("auc", sk.roc_auc_score(actual, probabilities, average=average, **given), average=average)
        else:
            self.add("auc", np.mean([area for area in one if area is not None]))
        return self

    def binary(self, threshold=None):
        """All figures of one channel that says yes or no."""
        scores, targets, weights = self.rows()
        scores, actual = scores[:, 0], (targets.reshape(-1) > 0.5).astype(int)
        predicted = (scores > self.limit(threshold or 0.5)).astype(int)
        settings = {} if threshold is None else {"threshold": threshold}
        self.counts(predicted, actual, weights, 2, **settings)
        for kind, figure in COUNTED.items():
            # What is usual for one channel.
            self.add(kind, figure(actual, predicted, average="binary", sample_weight=weights), **settings)
        self.add("confusion-matrix", sk.confusion_matrix(actual, predicted, sample_weight=weights).astype(float), **settings)
        self.add("auc", sk.roc_auc_score(actual, scores, sample_weight=weights))
        return self

    def labelled(self, threshold=None):
        """All figures of channels that each say yes or no."""
        scores, targets, weights = self.rows()
        actual = (targets > 0.5).astype(int)
        predicted = (scores > self.limit(threshold or 0.5)).astype(int)
        self.counts(predicted, actual, weights, scores.shape[1], **({} if threshold is None else {"threshold": threshold}))
        for average in AVERAGES:
            value = sk.roc_auc_score(actual, scores, average=None if average == "none" else average, sample_weight=weights)
            self.add("auc", value, average=average)
        return self

    def regression(self):
        predicted, targets, weights = self.rows()
        self.add("mae", sk.mean_absolute_error(targets, predicted, sample_weight=weights))
        mse = sk.mean_squared_error(targets, predicted, sample_weight=weights)
        self.add("mse", mse)
        self.add("rmse", np.sqrt(mse))
        for multioutput in ("uniform_average", "raw_values", "variance_weighted"):
            value = sk.r2_score(targets, predicted, sample_weight=weights, multioutput=multioutput)
            self.add("r2", value, multioutput=multioutput.replace("_", "-"))
        return self

    def json(self):
        def flat(array, digits=None):
            return None if array is None else [[float("%.9g" % v) if digits else int(v) for v in row.flatten()] for row in array]

        lines = ",\n  ".join(json.dumps(entry, separators=(",", ":"), allow_nan=False) for entry in self.expected)
        head = {
            "case": self.name,
            "format": self.format,
            "predictions": flat(self.predictions, 9),
            "labels": flat(self.labels),
            "values": flat(self.values, 9),
            "weights": None if self.weights is None else self.weights.tolist(),
        }
        return json.dumps(head, separators=(",", ":"))[:-1] + f',"expected":[\n  {lines}]}}'


def cases():
    rng = np.random.default_rng(1)
    normal = lambda *shape: rng.normal(size=shape)
    weights = lambda n: rng.choice([0.0, 0.25, 1.0, 1.7, 3.0], size=n)
    labels = lambda classes, *shape: rng.integers(0, classes, size=shape)

    yield Case("classes", (5,), normal(60, 5), labels(5, 60), classes=5).classes()
    yield Case("classes_weighted", (5,), normal(60, 5), labels(5, 60), weights=weights(60), classes=5).classes()
    # Rows of sixteenths that add up to 1, so that many are equal.
    ties = rng.multinomial(16, [0.2] * 5, size=60) / 16 * 0.75 + 0.05
    given = {"scores": "probabilities", "classes": 5}
    yield Case("classes_with_ties", (5,), ties, labels(5, 60), **given).classes(ties=True)
    yield Case("classes_with_ties_weighted", (5,), ties, labels(5, 60), weights=weights(60), **given).classes(ties=True)
    # Some classes are never right, some of these never predicted either.
    some = normal(40, 7) - np.array([0, 0, 0, 0, 9, 0, 9])
    yield Case("absent_classes", (7,), some, rng.choice([0, 2, 3, 5], 40), classes=7).classes()
    log_softmax = torch.log_softmax(torch.tensor(normal(30, 4)), 1).float().numpy()
    yield Case("log_probabilities", (4,), log_softmax, labels(4, 30), scores="log-probabilities", classes=4).classes()
    yield Case("two_classes", (2,), normal(40, 2), labels(2, 40), weights=weights(40), classes=2).classes()
    yield Case("pixels", (3, 4, 5), normal(8, 3, 4, 5), labels(3, 8, 4, 5), weights=weights(8), classes=3).classes()
    void = labels(3, 8, 12)
    void[rng.random(void.shape) < 0.3] = 255
    yield Case("pixels_with_void", (3, 3, 4), normal(8, 3, 3, 4), void, classes=3, ignored=255).classes()
    given = {"classes": 4, "ignored": 1}
    yield Case("one_class_ignored", (4, 6), normal(9, 4, 6), labels(4, 9, 6), weights=weights(9), **given).classes()
    yield Case("sequences", (6, 7), normal(9, 6, 7), labels(7, 9, 6), classes=7, classes_last=True).classes()
    one_hot = np.eye(5)[labels(5, 40)]
    yield Case("one_hot", (5,), normal(40, 5), values=one_hot, weights=weights(40)).classes()
    yield Case("soft_targets", (4,), normal(40, 4), values=torch.softmax(torch.tensor(normal(40, 4)), 1)).classes()
    yield Case("binary_logits", (1,), normal(50, 1), values=labels(2, 50, 1), weights=weights(50)).binary()
    coarse = rng.integers(1, 10, size=(50, 1)) / 16
    yield Case("binary_with_ties", (1,), coarse, values=labels(2, 50, 1), scores="probabilities").binary(0.3)
    yield Case("binary_labels", (1,), normal(50, 1), labels(2, 50), classes=2).binary(0.7)
    yield Case("binary_mask", (1, 4, 5), normal(8, 1, 4, 5), values=labels(2, 8, 20), weights=weights(8)).binary()
    yield Case("labels", (6,), normal(40, 6), values=labels(2, 40, 6), multilabel=True).labelled()
    given = {"weights": weights(40), "scores": "probabilities", "multilabel": True}
    yield Case("labels_weighted", (3,), rng.random((40, 3)), values=labels(2, 40, 3), **given).labelled(0.4)
    yield Case("label_maps", (3, 2, 3), normal(9, 3, 2, 3), values=labels(2, 9, 18), multilabel=True).labelled()
    yield Case("numbers", (1,), normal(30, 1), values=normal(30, 1)).regression()
    targets = normal(30, 3) * [1, 5, 0] + [100, 0, 2]
    yield Case("numbers_weighted", (3,), targets + normal(30, 3) / 4, values=targets, weights=weights(30)).regression()
    far = normal(20, 2, 3) + 1e4
    yield Case("far_from_zero", (2, 3), far + normal(20, 2, 3) / 8, values=far).regression()


def main():
    check_version()
    warnings.simplefilter("ignore")
    lines = [case.json() for case in cases()]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    json.loads(text)
    (FOLDER / "metrics.json").write_text(text)


if __name__ == "__main__":
    main()
