"""Writes models of torchvision and an LSTM with what PyTorch makes of them: `python torchvision_models.py FOLDER`.

Of each: NAME.onnx, NAME.json with the shape of a batch, the learning rate and the losses of ten steps of SGD on the mean squared error
to zeros, NAME.input with the batch and NAME.output with what the model makes of it in evaluation. Then `TIGHTFIT_ONNX_TRAIN=FOLDER cargo test --release --test library
models_of_torchvision_train_alike` compares.
"""

import json
import pathlib
import sys

import torch
import torchvision
from torch import nn


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 32, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


MODELS = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=10), (3, 64, 64), 1e-3),
    "mobilenet_v3_small": (lambda: torchvision.models.mobilenet_v3_small(num_classes=10, dropout=0.0), (3, 128, 128), 1e-1),
    "efficientnet_b0": (
        lambda: torchvision.models.efficientnet_b0(num_classes=10, dropout=0.0, stochastic_depth_prob=0.0), (3, 128, 128), 1e-4),
    "lstm": (Lstm, (20, 8), 1e-1),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, shape, lr) in MODELS.items():
        torch.manual_seed(3)
        # In evaluation mode, the exporter makes one of weights that are equal as yet.
        model = make().train()
        x = torch.randn(8, *shape)
        torch.onnx.export(
            model, (x,), str(folder / f"{name}.onnx"), dynamo=False, opset_version=18, input_names=["x"], output_names=["y"],
            dynamic_axes={"x": {0: "batch"}}, do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE)
        # It ran the model, whose statistics are in the file as they are now.
        output = model.eval()(x).detach()
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        (folder / f"{name}.input").write_bytes(x.numpy().tobytes())
        (folder / f"{name}.output").write_bytes(output.numpy().tobytes())
        (folder / f"{name}.json").write_text(json.dumps({"shape": list(x.shape), "lr": lr, "losses": losses}))
        print(name, losses)


main()
