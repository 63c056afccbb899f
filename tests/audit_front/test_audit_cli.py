"""`gapless audit` as a user types it: targets, documents, exit codes, and one sentence an error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gapless.cli.main import main

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="audits are live on a machine with a GPU"
)

STEP = """
    import torch

    DEVICE = "cpu"
    NUMBER = 3

    def build():
        x = torch.ones(4, device=DEVICE)

        def step():
            return x.sum().item()

        return step

    def plain():
        torch.ones(2, device="cuda").tolist()

    def broken():
        raise KeyError("layer.3")

    def odd():
        torch.ops.audit_cli_test.odd(torch.ones(4, device="cuda"))

    def huge():
        torch.zeros(10**6, 10**7, device="cuda")
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import textwrap

    monkeypatch.chdir(tmp_path)
    Path("steps.py").write_text(textwrap.dedent(STEP))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["audit", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def document(out: str) -> dict[str, Any]:
    """The JSON document that is all of the output."""
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_document_has_the_fields_of_the_contract(run: Any) -> None:
    code, out, _ = run("steps.py:build", "--json")
    assert code == 0
    found = document(out)
    assert found["target"] == "steps.py:build"
    assert (found["device"], found["times"]) == ("emulated H100 (real values)", "modelled")
    assert (found["schema"], found["source"], found["steps"]) == (1, "emulated", 1)
    assert found["syncs_per_step"] == 1
    (site,) = found["sites"]
    expected = {
        "op": "aten::_local_scalar_dense", "kind": "scalar_read", "phase": "forward",
        "count_per_step": 1, "syncs_per_call": 1, "line": 11, "code": "return x.sum().item()",
        "function": "build.<locals>.step",
    }  # fmt: skip
    assert {name: site[name] for name in expected} == expected
    assert site["remedy"]
    assert {"blocked_ms", "exposed_ms", "module"} <= site.keys()
    assert {"span_ms", "busy_ms", "idle_ms", "overlap"} <= found["timeline"].keys()
    assert {"redundant_groups", "copies", "api_calls", "profiler_own"} <= found.keys()


def test_a_module_on_the_path_and_a_step_that_is_the_function_itself(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("their_package").mkdir()
    Path("their_package/train.py").write_text(Path("steps.py").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = run("their_package.train:plain", "--gpu", "A100", "--shapes", "--steps", "2")
    assert code == 0
    assert "emulated A100 (shapes only)" in out
    assert "2 steps, 1 sync per step" in out


def test_a_script_takes_its_own_arguments(run: Any) -> None:
    Path("train.py").write_text(
        "import sys, torch\n"
        "m = torch.nn.Linear(2, 2).cuda(); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for i in range(int(sys.argv[sys.argv.index('--iters') + 1])):\n"
        "    loss = m(torch.ones(1, 2, device='cuda')).sum(); loss.backward(); o.step()\n"
        "    print('loss', loss.item())\n"
    )
    code, out, err = run("train.py", "--json", "--", "--iters", "4", "--debug")
    assert code == 0
    assert err.count("loss ") == 4
    assert (document(out)["steps"], document(out)["syncs_per_step"]) == (3, 1)
    code, out, _ = run("train.py", "--steps", "1", "--skip", "0", "--json", "--", "--iters", "9")
    assert document(out)["steps"] == 1


def test_a_scenario_as_one_arm_computes_it(run: Any) -> None:
    words = ("--scenario", "qwen3-8b-packed-sft", "--layers", "2", "--tokens", "64", "--json")
    code, out, _ = run(*words)
    assert code == 0
    assert document(out)["syncs_per_step"] == 12
    code, out, _ = run(*words, "--arm", "packed-metadata=collator")
    assert document(out)["syncs_per_step"] == 0
    code, out, _ = run(*words, "--attention", "sdpa", "--no-checkpointing", "--scale", "layers")
    assert document(out)["sites"][0]["growth"] == "1"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "Name one thing to audit"),
        (("steps.py:build", "--scenario", "gpt-oss-20b"), 2, "Name one thing to audit"),
        (("nothing.py:build",), 2, "There is no file nothing.py"),
        (("nothing.py",), 2, "There is no script nothing.py"),
        (("no.such.module:step",), 2, "There is no module 'no.such.module'"),
        (("steps.py:missing",), 2, "it defines broken, build, huge, odd, plain"),
        (("steps.py:NUMBER",), 2, "is a int, not callable"),
        (("steps",), 2, "names no callable"),
        (("steps.py:broken",), 3, "raised KeyError at "),
        (("steps.py:build", "--gpu", "H1000"), 2, "knows no GPU named 'H1000'"),
        (("steps.py:build", "--steps", "0"), 2, "--steps 0 is out of range; give 1 or more"),
        (("steps.py:build", "--skip", "-1"), 2, "--skip -1 is out of range; give 0 or more"),
        (("steps.py:build", "--routing", "odd"), 2, "choose uniform or skewed"),
        (("steps.py:build", "extra"), 2, "only a script takes its own"),
        (
            ("steps.py:build", "--annotate", "x.json.gz"),
            2,
            "--annotate is for a trace, and steps.py:build is a callable",
        ),
        (
            ("steps.py:build", "--scale", "layers"),
            2,
            "--scale is for a scenario or a configuration, and steps",
        ),
        (("steps.py:huge", "--values"), 2, "audit shapes only (--shapes)"),
        (("--scenario", "gpt-oss-21b"), 2, "gpt-oss-20b"),
        (("--scenario", "qwen3-8b-packed-sft", "--scale", "experts"), 2, "has no experts"),
        (("--scenario", "gpt-oss-20b", "--arm", "moe-routing=best"), 2, "no variant 'best'"),
        (("missing.json.gz",), 2, "there is no trace"),
        (("steps.json",), 2, "is not a Kineto trace"),
        (("a.json", "b.json", "c.json"), 2, "Two traces can be compared, not 3"),
    ],
)
def test_an_error_is_one_sentence_with_the_right_code(
    run: Any, words: tuple[str, ...], code: int, says: str
) -> None:
    Path("steps.json").write_text('{"loss": 1}')
    got, out, err = run(*words)
    assert (got, out) == (code, ""), (out, err)
    assert says in err
    assert err.startswith("gapless: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_an_op_without_a_kernel_on_shapes_is_named(run: Any) -> None:
    library = torch.library.Library("audit_cli_test", "DEF")
    library.define("odd(Tensor x) -> Tensor")
    library.impl("odd", lambda x: x.clone(), "CPU")
    assert run("steps.py:odd", "--values")[0] == 0
    code, _, err = run("steps.py:odd", "--shapes")
    assert code == 3
    assert "audit_cli_test::odd cannot run on shapes only" in err
    assert "torch.library.register_fake" in err


def test_a_model_too_large_for_values_is_audited_on_shapes_by_itself(run: Any) -> None:
    code, out, _ = run("steps.py:huge")
    assert code == 0
    assert "emulated H100 (shapes only)" in out
    assert "more than the 86 GB" in out


def test_debug_shows_the_traceback(run: Any) -> None:
    code, _, err = run("steps.py:broken", "--debug")
    assert code == 3
    assert "Traceback" in err


def trace(path: Path, waits: int) -> str:
    """A small CUDA trace in which `.item()` waits so many times."""
    events: list[dict[str, Any]] = []
    for i in range(waits):
        start = 1000.0 + 100 * i
        common = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**common, "cat": "cpu_op", "name": "aten::item", "ts": start, "dur": 50},
            {**common, "cat": "cpu_op", "name": "aten::_local_scalar_dense", "ts": start + 1,
             "dur": 48},
            {**common, "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": start + 10,
             "dur": 30, "args": {"correlation": 10 + i}},
            {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "k", "ts": start + 5,
             "dur": 30, "args": {"device": 0, "stream": 7, "correlation": 500 + i}},
        ]  # fmt: skip
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return str(path)


def test_traces_are_audited_compared_and_annotated(run: Any, tmp_path: Path) -> None:
    two, three = trace(tmp_path / "a.json.gz", 2), trace(tmp_path / "b.json.gz", 3)
    code, out, _ = run(two, "--json")
    assert code == 0
    assert document(out)["api_calls"] == {"cudaStreamSynchronize": 2}
    code, out, _ = run(two, three, "--json")
    assert code == 0
    rows = document(out)["rows"]
    assert any(row["group"] == "syncs" and (row["a"], row["b"]) == (2, 3) for row in rows)
    code, out, err = run(two, "--annotate", "out.json.gz", "--tensorboard", "runs")
    assert code == 0
    assert Path("out.json.gz").is_file()
    assert list(Path("runs").glob("*.pt.trace.json.gz"))
    assert "perfetto" in err
    code, out, _ = run(two, "--compat", "hta")
    assert code == 0
    assert "idle_time_us" in out
    code, _, err = run(two, three, "--annotate", "x.json.gz")
    assert code == 2
    assert "--annotate is for a trace, and" in err
    assert "is a pair of traces" in err
