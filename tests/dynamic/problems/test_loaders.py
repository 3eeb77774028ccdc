"""The four formats, and that the grader never runs a candidate's own code."""

import json
import runpy
import textwrap

import pytest
import torch

from kcontract.dynamic.problems.load import again, load
from kcontract.errors import InputError, UsageError


def write(path, text):
    path.write_text(textwrap.dedent(text))
    return str(path)


KERNELBENCH = """
    import torch
    SIZE = 5
    class Helper(torch.nn.Module):
        def forward(self, x):
            return x + 1
    class Model(torch.nn.Module):
        def __init__(self, k):
            super().__init__()
            self.helper, self.k = Helper(), k
        def forward(self, x):
            return self.helper(x) * self.k
    class ModelNew(Model):
        raise RuntimeError("the grader ran the candidate")
    torch.add = None
    raise RuntimeError("the grader ran the candidate's module")
    def get_inputs():
        return [torch.rand(2, SIZE)]
    def get_init_inputs():
        return [3]
"""


def test_a_kernelbench_file_gives_its_reference_without_running_the_candidate(tmp_path):
    (problem,) = load(write(tmp_path / "p.py", KERNELBENCH))
    assert problem.candidate.kind == "module"
    assert problem.init == (3,)
    (x,) = problem.inputs()
    assert torch.equal(problem.reference()(x), (x + 1) * 3)
    assert callable(torch.add)


def test_reference_and_candidate_may_stand_in_two_files(tmp_path):
    reference = write(tmp_path / "ref.py", KERNELBENCH)
    candidate = write(tmp_path / "mine.py", "class Mine: pass")
    (problem,) = load(candidate, reference, "Mine")
    assert (problem.candidate.path, problem.candidate.name) == (candidate, "Mine")
    assert again(problem.origin).candidate == problem.candidate
    with pytest.raises(InputError, match="defines no ModelNew; name the class with --candidate"):
        load(candidate, reference)


CONTRACTED = """
    import torch
    import kcontract
    def right(x):
        return x * 2
    def draw():
        return [torch.rand(3, 4)]
    @kcontract.contract(reference=right, inputs=draw, nan="ignore", gradients=True, ranges={"width": (1, 64)})
    def double(x):
        return x + x
    @kcontract.contract(reference=torch.relu, inputs=draw)
    def relu(x):
        return x.clamp(min=0)
    raise RuntimeError("the grader ran the candidate's module")
"""


def test_contracts_are_read_from_the_decorator(tmp_path):
    path = write(tmp_path / "c.py", CONTRACTED)
    double, relu = load(path)
    assert double.contract.nan.value == "ignore"
    assert double.contract.ranges == {"width": (1, 64)}
    assert double.origin["gradients"] is True
    assert double.reference()(torch.ones(1)).item() == 2
    assert [p.name for p in load(path, name="relu")] == ["relu"]
    assert again(relu.origin).name == "relu"
    with pytest.raises(InputError, match="no contract on gone; it has one on double, relu"):
        load(path, name="gone")


@pytest.mark.parametrize(
    "keywords, message",
    [
        ("reference=right, inputs=draw, nan='maybe'", r"nan='maybe'\): write one of 'propagate', 'ignore'"),
        ("reference=right, inputs=draw, speed=1", "no argument 'speed'; it takes reference"),
        ("reference=right", "its contract is incomplete"),
        ("reference=3, inputs=draw", "contract\\(reference=3\\): give a function"),
        ("reference=right, inputs=nowhere", "inputs=...\\) cannot be evaluated: NameError"),
    ],
)
def test_a_bad_contract_is_told_with_its_line(tmp_path, keywords, message):
    text = f"def right(x): pass\ndef draw(): pass\nimport kcontract\n@kcontract.contract({keywords})\ndef f(x): pass\n"
    with pytest.raises(InputError, match=f"c.py:4: .*{message}"):
        load(write(tmp_path / "c.py", text))


def test_the_decorator_refuses_at_import_what_the_loader_refuses():
    import kcontract

    with pytest.raises(UsageError, match="write one of"):
        kcontract.contract(reference=len, inputs=len, determinism="perhaps")
    marked = kcontract.contract(reference=len, inputs=list)(len_of := lambda x: len(x))
    assert marked is len_of
    assert marked.__kcontract__.reference is len


TRITONBENCH = """
    import torch
    def scale(input, other, alpha=2, out=None):
        return input + alpha * other
    ##########
    def test_scale():
        results = {}
        results["a"] = scale(3, 4)
        results["b"] = scale(torch.ones(2, 3, device="cuda"), torch.ones(2, 3).cuda(), alpha=5)
        return results
    test_results = test_scale()
"""


def test_tritonbench_inputs_are_those_of_its_test(tmp_path):
    reference = write(tmp_path / "scale.py", TRITONBENCH)
    candidate = write(tmp_path / "mine.py", "def scale(input, other, alpha=2, out=None): pass")
    (problem,) = load(candidate, reference)
    x, other, alpha, out = problem.inputs()
    assert (x.device.type, x.shape, other.shape, alpha, out) == ("cpu", (2, 3), (2, 3), 5, None)
    assert problem.reference()(x, other, alpha, out).unique().item() == 6


DEFINITION = {
    "name": "scaled",
    "axes": {"b": {"type": "var"}, "two": {"type": "var"}, "h": {"type": "const", "value": 8}},
    "constraints": ["two == b * 2"],
    "inputs": {"x": {"shape": ["b", "h"], "dtype": "float16"}, "eps": {"shape": None, "dtype": "float32"}},
    "outputs": {"y": {"shape": ["b", "h"], "dtype": "float16"}},
    "reference": "import torch\ndef run(x, eps):\n    return x * 2",
}


def solution(**spec):
    main = (
        "import torch\ndef run(eps, x, y=None):\n    if y is None:\n        return {'y': x + x}\n    y.copy_(x + x)\n"
    )
    return {
        "name": "mine",
        "spec": {"entry_point": "src/main.py::run", **spec},
        "sources": [{"path": "src/main.py", "content": main}],
    }


@pytest.mark.parametrize("passed", [True, False])
def test_a_flashinfer_solution_is_called_by_keyword_in_both_styles(tmp_path, passed):
    written = tmp_path / "s.json"
    written.write_text(json.dumps(solution(destination_passing_style=passed)))
    (tmp_path / "d.json").write_text(json.dumps(DEFINITION))
    (problem,) = load(str(written), str(tmp_path / "d.json"))
    assert problem.spec.arguments[0].shape == ("b", 8)
    assert problem.spec.dims == {"b": 64, "two": 128}
    x, eps = problem.inputs()
    (y,) = runpy.run_path(problem.candidate.path)["run"](x, eps)
    assert torch.equal(y, x + x)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"entry_point": "kernel.cu::run"}, "only FILE.py::FUNCTION can be called"),
        ({"entry_point": "other.py::run"}, "which is not among its sources"),
    ],
)
def test_a_solution_that_cannot_be_called_is_refused(tmp_path, change, message):
    (tmp_path / "s.json").write_text(json.dumps(solution(**change)))
    (tmp_path / "d.json").write_text(json.dumps(DEFINITION))
    with pytest.raises(InputError, match=message):
        load(str(tmp_path / "s.json"), str(tmp_path / "d.json"))


def test_a_source_outside_the_solutions_folder_is_refused(tmp_path):
    bad = solution()
    bad["sources"].append({"path": "../../evil.py", "content": ""})
    (tmp_path / "s.json").write_text(json.dumps(bad))
    (tmp_path / "d.json").write_text(json.dumps(DEFINITION))
    with pytest.raises(InputError, match="lies outside its folder"):
        load(str(tmp_path / "s.json"), str(tmp_path / "d.json"))


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("none.py", None, "there is no such file"),
        ("empty.py", "", "holds no reference: it needs Model and get_inputs"),
        ("broken.py", "def f(:", "broken.py:1: is not Python"),
        ("zero.py", "x = '\0'", "is not Python"),
        ("s.json", "{}", "give its flashinfer-bench Definition"),
    ],
)
def test_what_is_no_problem_is_a_sentence(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        load(str(tmp_path / name))
