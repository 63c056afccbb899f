"""Own files, installed ones and the user's are told apart, also where all lie side by side."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch
import transformers

import optimizations
import scenarios
from harness import origin
from harness.audit.frames import Code, CodeClassifier

STDLIB, PACKAGES = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")


def kind(file: str) -> Code:
    return CodeClassifier().kind(compile("pass", file, "exec"))


def of(module: object, name: str = "module.py") -> str:
    return str(Path(str(vars(module)["__file__"])).parent / name)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (of(origin), Code.SKIP),
        (of(origin, "audit/tally.py"), Code.SKIP),
        (f"{origin.HOME}/gapless/auditing.py", Code.SKIP),
        (of(scenarios), Code.USER),
        (of(optimizations), Code.USER),
        (of(transformers), Code.LIBRARY),
        (of(torch), Code.SKIP),
        (of(torch, "optim/adamw.py"), Code.LIBRARY),
        (f"{PACKAGES}/torchvision/ops.py", Code.LIBRARY),
        (f"{STDLIB}/threading.py", Code.SKIP),
        ("/home/u/.local/lib/python3.11/site-packages/transformers/trainer.py", Code.LIBRARY),
        ("/usr/lib/python3/dist-packages/numpy/core.py", Code.LIBRARY),
        (f"{origin.HOME}/gapless_train.py", Code.USER),
        (f"{origin.HOME}/harnessed/train.py", Code.USER),
        ("/home/u/train.py", Code.USER),
        ("<string>", Code.SKIP),
    ],
)
def test_what_a_file_is_to_the_audit(file: str, expected: Code) -> None:
    if file.startswith(PACKAGES) and expected is Code.USER:
        expected = Code.LIBRARY  # a stranger's file beside an installed gapless
    assert kind(file) == expected


@pytest.mark.parametrize(
    ("file", "short"),
    [
        (f"{origin.HOME}/scenarios/masks.py", "scenarios/masks.py"),
        (f"{PACKAGES}/transformers/masking_utils.py", "transformers/masking_utils.py"),
        (r"C:\env\Lib\site-packages\torch\x.py", r"torch\x.py"),
        ("/home/u/site-packages-of-mine/train.py", "/home/u/site-packages-of-mine/train.py"),
        ("train.py", "train.py"),
    ],
)
def test_a_path_from_its_package_on(file: str, short: str) -> None:
    assert origin.below_packages(file) == short


def test_import_folders_are_those_of_packages_and_the_innermost_comes_first() -> None:
    folders = origin.import_folders()
    assert {origin.HOME, PACKAGES} <= set(folders)
    assert list(folders) == sorted(folders, key=len, reverse=True)
