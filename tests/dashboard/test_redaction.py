"""What an export for others shows: nothing that tells who, where or with what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest
from msgspec import inspect

from dashboard import redaction_rules as rules
from dashboard.markdown_report import csv_report, json_report, markdown_report
from dashboard.redaction import REDACTED, redacted_audits, redacted_run, redacted_samples
from gapless.public_texts import public_texts
from harness.record.attachments import ArmAudit
from harness.record.records import RunRecord, Sample
from tests.dashboard import synthetic
from tests.dashboard.exporting import data_of, exported
from tests.dashboard.stores import fill_one

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.store import Store

S = TypeVar("S", bound=msgspec.Struct)

SECRETS = (
    "/home/John Smith/my proj/train.py", "/home/alice/x.py", "/root/secret/train.py", "/mnt/alice",
    "/scratch/alice/alice_train.txt", "C:\\Users\\Bob\\train.txt", "C:\\Users\\Bob Smith\\My Docs",
    "\\\\fileserver\\share\\bob\\x", "//nas/alice/x", "~/alice/x", "~alice/x", "file:///home/alice",
    "s3://bucket/secret/run", "git@github.com:acme/secret.git", "alice@host.example.com",
    "host.example.com", "10.1.2.3", "../../alice/secret/x", "./alice/secret/x", "alice/secret/x",
    "--weights=/home/alice/w", '"/home/alice/a b/c"', "/home/алиса/код/x",
    "/home/alice/.ssh/id_rsa",
    "HF_TOKEN=hf_abcdef", "hf_abcdefghijklmnop", "sk-proj-abc123", "ghp_16C7e42F292c6912E7",
    "AKIAIOSFODNN7EXAMPLE", "PATH=/usr/bin:/home/alice/bin", "$HOME/alice/x", "/home/alice:rw",
    "/gpfs/projects/acme-merger/x: f", "nn.Module: AcmeSecret_0", "acme_secret.encoder.layer",
    "[/home/alice/proj]", "(/home/alice)", "<frozen /home/alice>", "it's /home/o'neil/x",
    "/Users/carol", "D:/work/carol/x", "acme_secret/model.cu",
    "wandb api key 0123456789abcdef01234567",
)  # fmt: skip
WORDS = re.compile(
    r"alice|bob|smith|john|acme|fileserver|secret|host\.ex|10\.1\.2|алиса|carol|neil|hf_|sk-p|ghp_|"
    r"akia|/home|/root|nas/|github|id_rsa|0123456789abcdef",
    re.IGNORECASE,
)


def filled(kind: Any, text: str, depth: int = 0) -> Any:
    """A value in which every text that may be any text is `text`, and every list has an entry."""
    match kind:
        case inspect.StructType():
            given = {f.name: filled(f.type, text, depth + 1) for f in kind.fields}
            return kind.cls(**given)
        case inspect.VarTupleType():
            return (filled(kind.item_type, text, depth),)
        case inspect.TupleType():
            return tuple(filled(one, text, depth) for one in kind.item_types)
        case inspect.DictType():
            return {text: filled(kind.value_type, text, depth)}
        case inspect.UnionType():
            struct = [k for k in kind.types if isinstance(k, inspect.StructType)]
            texts = [k for k in kind.types if isinstance(k, inspect.StrType)]
            rest = [k for k in kind.types if not isinstance(k, inspect.NoneType)]
            return filled((struct or texts or rest)[0], text, depth)
        case inspect.EnumType():
            return next(iter(kind.cls))
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StrType():
            return text
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 1.0
        case inspect.BoolType():
            return True
    raise TypeError(f"nothing to fill {kind} with")


def texts_of(value: Any) -> list[str]:
    plain = msgspec.to_builtins(value)
    if isinstance(plain, str):
        return [plain]
    if isinstance(plain, dict):
        return [text for pair in plain.items() for part in pair for text in texts_of(part)]
    if isinstance(plain, list | tuple):
        return [text for part in plain for text in texts_of(part)]
    return []


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_in_any_field_is_left(secret: str) -> None:
    record = filled(inspect.type_info(RunRecord), secret)
    audit = filled(inspect.type_info(ArmAudit), secret)
    samples = (Sample(order=0, block=0, arm=secret, phase="batch", duration_ms=1.0),)
    shown = (
        redacted_run(record, public_texts()),
        redacted_audits(record, [audit], public_texts()),
        redacted_samples(record, samples),
    )
    assert REDACTED in texts_of(shown)
    for text in texts_of(shown):
        assert not WORDS.search(text), text
    assert samples[0].arm != shown[2][0].arm


def test_a_whole_export_holds_none(store: Store, tmp_path: Path) -> None:
    for number, secret in enumerate(SECRETS):
        record = filled(inspect.type_info(RunRecord), secret)
        good = synthetic.record(number)
        mixed = msgspec.structs.replace(
            record, id=good.id, created_utc=good.created_utc, samples=None, schema=good.schema
        )
        audits = [filled(inspect.type_info(ArmAudit), secret)]
        odd = msgspec.structs.replace(synthetic.samples(number)[0], arm=secret)
        store.write(mixed, [odd], audits=audits)
    page = exported(store, tmp_path / "out.html")
    data = msgspec.json.encode(data_of(page)).decode()
    assert data.count(REDACTED) > len(SECRETS)
    found = WORDS.search(data)
    assert not found, data[max(0, found.start() - 80) : found.end() + 80]


def test_a_report_holds_none() -> None:
    records = [
        redacted_run(filled(inspect.type_info(RunRecord), secret), public_texts())
        for secret in SECRETS
    ]
    for text in (markdown_report(records), csv_report(records), json_report(records)):
        assert not WORDS.search(text)


def test_figures_names_and_public_texts_stay() -> None:
    record = synthetic.record(1)
    shown = redacted_run(record, public_texts())
    for name in ("comparisons", "memory", "throughput", "arms", "num_samples", "created_utc"):
        assert getattr(shown, name) == getattr(record, name), name
    assert shown.scenario.model == record.scenario.model
    assert shown.machine.gpus == record.machine.gpus
    from scenarios.published import CLAIMS

    claimed = msgspec.structs.replace(record, claims=CLAIMS)
    assert redacted_run(claimed, public_texts()).claims == CLAIMS


def test_arms_that_cannot_be_named_stay_apart() -> None:
    record = synthetic.record(1)
    arms = tuple(
        msgspec.structs.replace(arm, name=f"/home/alice/{number}")
        for number, arm in enumerate(record.arms)
    )
    shown = redacted_run(msgspec.structs.replace(record, arms=arms))
    assert [arm.name for arm in shown.arms] == [f"arm {n + 1}" for n in range(len(arms))]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        (rules.place, "/x/site-packages/torch/nn/init.py:12 ones", "torch/nn/init.py:12 ones"),
        (rules.place, "/home/alice/train.py:3 secret", "train.py:3"),
        (rules.place, "transformers/masking_utils.py:7 f", "transformers/masking_utils.py:7 f"),
        (rules.place, "/x/site-packages/acme/core.py:3 f", "core.py:3"),
        (rules.file, "C:\\Users\\Bob Smith\\train.py", "train.py"),
        (rules.file, "/home/alice/.netrc", None),
        (rules.module, "model.layers.*.acme_secret.mlp", "model.layers.*.mlp"),
        (rules.name, "NVIDIA H200", "NVIDIA H200"),
        (rules.name, "Qwen2.5-7B-Instruct", "Qwen2.5-7B-Instruct"),
        (rules.name, "emulated B200 (shapes only)", "emulated B200 (shapes only)"),
        (rules.name, "build.acme.internal", None),
        (rules.kernel, "void at::native::vectorized_elementwise_kernel<4, float>()",
         "void at::native::vectorized_elementwise_kernel<4, float>()"),
        (rules.kernel, "acme_secret_kernel", None),
        (rules.op, "aten::_local_scalar_dense", "aten::_local_scalar_dense"),
        (rules.op, "acme::secret", None),
    ],
)  # fmt: skip
def test_rules(rule: rules.Rule, text: str, expected: str | None) -> None:
    assert rule(text) == expected


def test_every_rule_is_for_a_field_that_exists(store: Store) -> None:
    fill_one(store)
    known: set[tuple[str, str]] = set()

    def walk(kind: Any) -> None:
        fields = kind.fields if isinstance(kind, inspect.StructType) else ()
        if fields and (kind.cls.__name__, fields[0].name) not in known:
            known.update((kind.cls.__name__, field.name) for field in fields)
            for field in fields:
                walk(field.type)
        for name in ("item_type", "key_type", "value_type"):
            if hasattr(kind, name):
                walk(getattr(kind, name))
        for one in getattr(kind, "types", getattr(kind, "item_types", ())):
            walk(one)

    walk(inspect.type_info(RunRecord))
    walk(inspect.type_info(ArmAudit))
    stray = {
        rule for rule in rules.RULES if rule not in known and rule[1] not in ("arm", "baseline")
    }
    assert stray == set()
