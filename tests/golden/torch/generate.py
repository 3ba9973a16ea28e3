"""Small files of PyTorch, and what is in them: python tests/golden/torch/generate.py"""

import json
import os
import pickle
from pathlib import Path

import torch

HERE = Path(__file__).parent


class Net(torch.nn.Module):
    """As `net()` in tests/library/torch.rs."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 2, 3)
        self.bn1 = torch.nn.BatchNorm2d(2)
        self.fc = torch.nn.Linear(2, 3)

    def forward(self, x):
        return self.fc(torch.relu(self.bn1(self.conv1(x))).mean((2, 3)))


class Command:
    """Runs a command where a pickle is run."""

    def __reduce__(self):
        return (os.system, ("touch pickle-was-run",))


def main():
    torch.manual_seed(0)
    net = Net()
    net(torch.randn(4, 1, 5, 5))
    # Steps of the optimizer change parameters in place.
    state = {name: value.clone() for name, value in net.state_dict().items()}
    torch.save(state, HERE / "state.pt")
    torch.save(state, HERE / "legacy.pth", _use_new_zipfile_serialization=False)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 1, 5, 5)).sum().backward()
    optimizer.step()
    net.load_state_dict(state)
    parallel = {f"module.{name}": value for name, value in state.items()}
    checkpoint = {"epoch": 3, "state_dict": parallel, "optimizer": optimizer.state_dict(), "best": 0.5}
    torch.save(checkpoint, HERE / "checkpoint.pt")
    torch.save({name: value.to(torch.bfloat16) if value.is_floating_point() else value for name, value in state.items()}, HERE / "bf16.pt")
    torch.save({"half": torch.tensor([1.5, -2.25], dtype=torch.float16), "double": torch.tensor([[0.1], [7e-3]], dtype=torch.float64),
                "whole": torch.tensor([-3, 70000]), "view": torch.arange(12.0).reshape(3, 4).t()[1:3], "flags": torch.tensor([True, False])},
               HERE / "types.pt")
    torch.save({"repeated": torch.zeros(1).expand(1 << 20)}, HERE / "repeated.pt")
    # A dictionary of tensors that comes with a command.
    with open(HERE / "command.pt", "wb") as file:
        pickle.dump({"weight": [1.0], "run": Command()}, file, protocol=2)
    values = {name: {"shape": list(value.shape), "values": value.flatten().double().tolist()} for name, value in state.items()}
    (HERE / "state.json").write_text(json.dumps(values, indent=1) + "\n")


main()
