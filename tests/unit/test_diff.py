"""The command `w2w diff`, its files and its errors."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gpu_utils.cli.app import program
from gpu_utils.errors import W2WError
from gpu_utils.model.activations import RecordingError, recording_of
from gpu_utils.model.call_pairs import call_pairs
from gpu_utils.model.port_diff import port_diff, recordings_diff
from gpu_utils.model.recording_files import encoded, load_recording

ORIGINAL = """
import torch
from torch import nn

def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)), torch.randn(5, 8)

def exact():
    made, x = model()
    made[1].eps = 1e-2
    made[2] = nn.GELU(approximate="tanh")
    return made, x

def other_input():
    return model()[0], torch.ones(5, 8)

def other_weights():
    made, x = model()
    nn.init.ones_(made[3].weight)
    return made, x

def number():
    return 3

def fails():
    return nn.Linear(3, 3), torch.ones(5, 8)

def raises():
    return undefined
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "m.py").write_text(ORIGINAL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words, capsys):
    """The exit code and what was printed."""
    with pytest.raises(SystemExit) as ended:
        program().main(["diff", *words], prog_name="w2w")
    return ended.value.code, capsys.readouterr().out


def test_the_same_model_agrees(folder, capsys):
    code, said = run("m.py", "m.py", capsys=capsys)
    assert code == 0
    assert "weights: 6 agree" in said
    assert "the same: 5 modules agree within rounding" in said


def test_both_faults_are_named_and_the_exit_code_is_1(folder, capsys):
    code, said = run("m.py", "m.py:exact", "--every", capsys=capsys)
    assert code == 1
    assert "1. 1 (LayerNorm): native_layer_norm\n   its settings are 8, 0.01; in A 8, 1e-05" in said
    assert "2. 2 (GELU): gelu\n   its settings are tanh; in A " in said
    assert "different: 2 of 5 modules compute something else" in said


def test_a_recording_stands_for_a_model_on_either_side(folder, capsys):
    assert run("m.py", "-o", "a.safetensors", capsys=capsys)[0] == 0
    assert "1. 1 (LayerNorm)" in run("a.safetensors", "m.py:exact", capsys=capsys)[1]
    code, said = run("m.py:exact", "a.safetensors", capsys=capsys)
    assert code == 1
    assert "change places" in said
    assert run("m.py:exact", "-o", "b.safetensors", capsys=capsys)[0] == 0
    code, said = run("a.safetensors", "b.safetensors", capsys=capsys)
    assert code == 1
    assert "1. 1 (LayerNorm)" in said
    assert "victim" in said
    assert "2. " not in said


def test_weights_are_copied_where_that_is_asked_for(folder, capsys):
    code, said = run("m.py", "m.py:other_weights", capsys=capsys)
    assert code == 1
    assert "weights: 5 agree; 1 differ: 3.weight" in said
    assert "the weight 3.weight is another one" in said
    assert run("m.py", "m.py:other_weights", "--weights", capsys=capsys)[0] == 0


def test_float64_sees_what_float32_hides(folder, capsys):
    assert run("m.py", "m.py:exact", "--double", capsys=capsys)[0] == 1
    assert run("m.py", "m.py", "--double", capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.py", "m.py"), "none.py is not there"),
        (("m.py:gone", "m.py"), r"has no function gone\(\)"),
        (("m.py:number", "m.py"), r"returned int, expected \(model, inputs\)"),
        (("m.py:raises", "m.py"), "NameError: name 'undefined' is not defined .line 30 of raises"),
        (("m.py:fails", "m.py"), "m.py:fails fails when its model is called: RuntimeError"),
        (("m.py", "m.py:fails"), "m.py:fails fails when its model is called: RuntimeError"),
        (("m.py", "m.py:other_input"), "called with different inputs: tensor 0"),
        (("gone.safetensors", "m.py"), "gone.safetensors is not there"),
        (("words.txt", "m.py"), "words.txt is no recording"),
        (("weights.safetensors", "m.py"), "tensors without a recording, such as weights"),
        (("m.py", "m.py", "--pair", "9=9"), "A calls no module '9'"),
    ],
)
def test_an_error_is_one_sentence(folder, words, said, capsys):
    (folder / "words.txt").write_text("no tensors here, only words")
    save_file({"x": torch.ones(2)}, folder / "weights.safetensors")
    with pytest.raises(W2WError, match=said):
        program().main(["diff", *words], prog_name="w2w")


class Wrapped(nn.Module):
    """Another model within, and a part under another name."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_a_wrapper_and_a_model_are_paired(folder):
    torch.manual_seed(1)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    a, b = recording_of(model, x), recording_of(Wrapped(model), x)
    assert {b.calls[j].path: a.calls[i].path for j, i in call_pairs(a, b).items()} == {
        "": "", "inner.0": "0", "inner.1": "1",
    }  # fmt: skip
    assert port_diff(a, Wrapped(model), x).same


def test_a_recording_is_read_as_it_was_written_and_hooks_are_gone(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    a = recording_of(model, x)
    file = tmp_path / "a.safetensors"
    file.write_bytes(encoded(a))
    again = load_recording(file)
    assert (again.calls, again.operators, again.weights, again.about) == (a.calls, a.operators, a.weights, a.about)
    assert all(torch.equal(one, other) for one, other in zip(a.values, again.values, strict=True))
    assert recordings_diff(a, again).same
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_residual_taken_from_the_wrong_place_is_named_with_its_line():
    class Block(nn.Module):
        def __init__(self, wrong):
            super().__init__()
            torch.manual_seed(2)
            self.norm, self.up, self.wrong = nn.LayerNorm(4), nn.Linear(4, 4), wrong

        def forward(self, x):
            y = self.norm(x)
            return (y if self.wrong else x) + self.up(y)

    x = torch.randn(3, 4)
    (fault,) = port_diff(recording_of(Block(False), x), Block(True), x).faults
    assert (fault.module, fault.operator, fault.because) == ("", "add", "it takes something else than in A")
    assert "return (y if self.wrong else x) + self.up(y)" in fault.line


def test_a_model_that_is_no_module_call_is_refused():
    class Silent(nn.Module):
        def __call__(self, x):
            return x

    with pytest.raises(RecordingError, match="call model"):
        recording_of(Silent(), torch.ones(1))
