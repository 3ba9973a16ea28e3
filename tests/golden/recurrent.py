"""Writes recurrent.json: layers of torch.nn.LSTM, torch.nn.GRU and torch.nn.RNN in training, `python recurrent.py`.

An entry:

    {"name", "layer": the layer as a model file writes it, "batch", "input", "lengths" or null, "target", "predicted",
     "parameters": {name: [shape, values after the steps]}}

Inputs and targets hold the samples of all steps, `batch` at a time. Parameters start by the recipe of losses.py, with the
hidden size as `fan`, under the names of a layer `lstm1`, `gru1` or `rnn1`. Each step is one of SGD with a rate of 1 on the mean squared
error of the layer's output. `predicted` is what the first parameters make of all samples. Where the layer is stateful, each
batch goes on from the states of the one before; gradients end there, and every `window` steps.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from common import check_version, draw, generator, numbers, tensor
from losses import weights

FOLDER = Path(__file__).parent
KINDS = {
    "lstm": ("lstm1", torch.nn.LSTM),
    "gru": ("gru1", torch.nn.GRU),
    "rnn": ("rnn1", torch.nn.RNN),
    "rnn_relu": ("rnn1", lambda *sizes, **settings: torch.nn.RNN(*sizes, nonlinearity="relu", **settings)),
}


def case(name, layer, time, features, batch=4, steps=1, lengths=False):
    return name, layer, time, features, batch, steps, lengths


CASES = [
    case("lstm_stacked", {"kind": "lstm", "hidden": 4, "num_layers": 2, "return_sequences": True}, 6, 3),
    case("lstm_bidirectional", {"kind": "lstm", "hidden": 3, "num_layers": 2, "bidirectional": True, "return_sequences": True}, 5, 3),
    case("lstm_lengths", {"kind": "lstm", "hidden": 4, "num_layers": 2, "lengths": True, "return_sequences": True}, 6, 3, lengths=True),
    case("lstm_window", {"kind": "lstm", "hidden": 4, "num_layers": 2, "window": 3, "return_sequences": True}, 8, 3),
    case("lstm_stateful", {"kind": "lstm", "hidden": 4, "num_layers": 2, "window": 3, "stateful": True}, 5, 3, steps=2),
    case("lstm_long", {"kind": "lstm", "hidden": 3, "num_layers": 2, "return_sequences": True}, 70, 2, batch=1),
    case("lstm_long_bidirectional", {"kind": "lstm", "hidden": 3, "num_layers": 2, "bidirectional": True, "lengths": True}, 100, 2, batch=2, lengths=True),
    case("gru_stacked", {"kind": "gru", "hidden": 4, "num_layers": 3}, 6, 3),
    case("gru_bidirectional_lengths", {"kind": "gru", "hidden": 3, "num_layers": 2, "bidirectional": True, "lengths": True}, 6, 3, lengths=True),
    case("gru_window", {"kind": "gru", "hidden": 4, "window": 2}, 7, 3),
    case("gru_stateful", {"kind": "gru", "hidden": 3, "num_layers": 2, "stateful": True, "return_sequences": True}, 4, 3, steps=3),
    case("gru_long", {"kind": "gru", "hidden": 3, "lengths": True, "window": 40}, 90, 2, batch=3, lengths=True),
    case("rnn_stacked", {"kind": "rnn", "hidden": 4, "num_layers": 2, "return_sequences": True}, 6, 3),
    case("rnn_bidirectional_lengths", {"kind": "rnn", "hidden": 3, "num_layers": 2, "bidirectional": True, "lengths": True}, 6, 3, lengths=True),
    case("rnn_stateful", {"kind": "rnn", "hidden": 3, "stateful": True, "return_sequences": True}, 4, 3, steps=3),
    case("rnn_long", {"kind": "rnn", "hidden": 4, "lengths": True, "window": 40}, 90, 4, batch=3, lengths=True),
    case("rnn_relu_last", {"kind": "rnn_relu", "hidden": 5, "num_layers": 2}, 7, 3),
]


def run(module, settings, input, lengths, states):
    """The layer's output, and the states it ends with."""
    time = input.shape[1]
    window = settings.get("window", time)
    outputs = []
    # A sample that has no step left in a window keeps its states and makes zeros.
    rest = torch.full((input.shape[0],), time) if lengths is None else lengths
    for begin in range(0, time, window):
        part = input[:, begin : begin + window]
        steps = part.shape[1]
        here = (rest - begin).clamp(0, steps)
        if states is not None:
            states = tuple(s.detach() for s in states) if isinstance(states, tuple) else states.detach()
        packed = pack_padded_sequence(part, here.clamp(min=1), batch_first=True, enforce_sorted=False)
        output, after = module(packed, states)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=steps)
        there = (here > 0)[:, None]
        outputs.append(torch.where(there[:, None], output, torch.zeros(())))
        if isinstance(after, tuple):
            before = states or tuple(torch.zeros_like(s) for s in after)
            states = tuple(torch.where(there, a, b) for a, b in zip(after, before))
        else:
            states = torch.where(there, after, torch.zeros_like(after) if states is None else states)
    if settings.get("return_sequences"):
        return torch.cat(outputs, 1), states
    hidden = states[0] if isinstance(states, tuple) else states
    return torch.cat((hidden[-2], hidden[-1]), 1) if module.bidirectional else hidden[-1], states


def entry(name, layer, time, features, batch, steps, has_lengths):
    rng = generator(f"recurrent/{name}")
    settings = dict(layer)
    kind, hidden = settings["kind"], settings["hidden"]
    bidirectional = settings.get("bidirectional", False)
    layer_name, make = KINDS[kind]
    module = make(
        features, hidden, settings.get("num_layers", 1), batch_first=True, bidirectional=bidirectional, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter, value in module.named_parameters():
            value.copy_(weights(f"{layer_name}.{parameter}", value.shape, hidden).double())
    samples = batch * steps
    input = draw((samples, time, features), None, rng)
    lengths = draw((samples,), ("lengths", time), rng) if has_lengths else None
    width = hidden * (2 if bidirectional else 1)
    target = draw((samples, time, width) if settings.get("return_sequences") else (samples, width), None, rng)

    def batches(learn):
        states, outputs = None, []
        for start in range(0, samples, batch):
            here = slice(start, start + batch)
            of_batch = None if lengths is None else lengths[here]
            output, states = run(module, settings, input[here].double(), of_batch, states)
            outputs.append(output.detach())
            if not settings.get("stateful"):
                states = None
            if learn:
                module.zero_grad()
                F.mse_loss(output, target[here].double()).backward()
                with torch.no_grad():
                    for value in module.parameters():
                        value -= value.grad
        return torch.cat(outputs)

    with torch.no_grad():
        predicted = batches(learn=False)
    batches(learn=True)
    parameters = ",".join(
        f'"{layer_name}.{parameter}":[{json.dumps(list(value.shape), separators=(",", ":"))},{numbers(value.float())}]'
        for parameter, value in module.named_parameters()
    )
    head = {"name": json.dumps(name), "layer": json.dumps(layer, separators=(",", ":")), "batch": str(batch)}
    rest = {"input": tensor(input), "lengths": tensor(lengths), "target": tensor(target), "predicted": tensor(predicted.float())}
    fields = head | rest | {"parameters": "{" + parameters + "}"}
    return "{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}"


def main():
    check_version()
    text = "[\n" + ",\n".join(entry(*case) for case in CASES) + "\n]\n"
    json.loads(text)
    (FOLDER / "recurrent.json").write_text(text)


if __name__ == "__main__":
    main()
