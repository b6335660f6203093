"""Texts and chats that are told apart, by decoders and by encoders."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    pipeline,
)

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import Answer
from tests.unit.trainer.process.trainer_spec import ME, SPEC
from trainer.contract import Lora, RunSpec
from trainer.convert.adapters import trainable_names
from trainer.data.batch import Batch, padded_with_classes
from trainer.data.prefetch import evaluation_batches
from trainer.data.tokens import TokenizedOnDemand
from trainer.export.companion_files import copy_companions
from trainer.export.hf_folder import merge_adapters
from trainer.methods.classification import ClassificationLoss
from trainer.model import sequence_head
from trainer.model.base_model import load_model
from trainer.model.tokenizer import load_tokenizer

LABELS = ("bad", "good")
SPEC_OF = replace(SPEC, method="classification", labels=LABELS, precision="fp32")
LORA = Lora(rank=4, alpha=8, dropout=0.0)
WORDS = {"good": ("lovely", "fine", "great"), "bad": ("broken", "awful", "late")}
BAD, GOOD = Tokens([5, 6, 7, 0], [True] * 4), Tokens([5, 8, 1], [True] * 3)


def says(*rows: tuple[float, float]) -> Callable[..., Answer]:
    return lambda **_: Answer(torch.tensor(rows))


def write_texts(path: Path, count: int) -> Path:
    """Texts of which one word tells the label."""
    rows = []
    for n in range(count):
        label = LABELS[n % 2]
        rows.append({"text": f"it came and was {WORDS[label][n % 3]}", "label": label})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def build_bert(folder: Path) -> Path:
    """Build a random encoder of two layers, with a whole-word tokenizer and no chat template."""
    words = ["it", "came", "and", "was", "lovely", "fine", "great", "broken", "awful", "late"]
    vocabulary = {
        w: n for n, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    }
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer()
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
    }
    PreTrainedTokenizerFast(tokenizer_object=raw, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bases(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of a decoder and of an encoder."""
    return {"llama": base, "bert": build_bert(tmp_path_factory.mktemp("bert"))}


def test_a_row_costs_the_cross_entropy_of_its_label() -> None:
    batch = padded_with_classes([BAD, GOOD], pad_id=0)
    scores = ClassificationLoss().scores(says((1.0, -1.0), (2.0, 0.0)), batch)

    logits = torch.tensor([[1.0, -1.0], [2.0, 0.0]])
    expected = -logits.log_softmax(-1)[[0, 1], [0, 1]].sum()
    assert scores.loss.item() == pytest.approx(expected.item())
    assert scores.correct == 1
    assert ClassificationLoss().units(batch) == 2


def test_the_class_is_not_read_and_padding_has_none() -> None:
    batch, nothing = padded_with_classes([BAD, GOOD], pad_id=0), padded_with_classes([], pad_id=0)

    assert batch.ids.tolist() == [[5, 6, 7], [5, 8, 0]]
    assert batch.classes is not None
    assert batch.classes.tolist() == [0, 1]
    assert ClassificationLoss().units(nothing) == 0
    scores = ClassificationLoss().scores(says((1.0, 9.0)), nothing)
    assert (scores.loss.item(), scores.correct.item()) == (0.0, 0)
    moved = batch.to(torch.device("cpu")).classes
    assert moved is not None
    assert moved.tolist() == [0, 1]


def test_texts_keep_the_special_tokens_of_the_tokenizer_even_when_they_are_cut(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(bases["bert"], "classification")
    data = write_texts(tmp_path / "texts.jsonl", 2)

    uncut, shortened = (
        TokenizedOnDemand(data, tokenizer, replace(SPEC_OF, max_seq_len=n))[1] for n in (16, 4)
    )

    assert tokenizer.decode(uncut.ids[:-1]) == "[CLS] it came and was fine [SEP]"
    assert tokenizer.decode(shortened.ids[:-1]) == "[CLS] it came [SEP]"
    assert (uncut.ids[-1], shortened.ids[-1]) == (1, 1)


def test_chats_go_through_the_chat_template(bases: dict[str, Path], tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "tea?"}, {"role": "assistant", "content": "3 dollars."}]
    data = tmp_path / "chats.jsonl"
    data.write_text(json.dumps({"messages": chat, "label": "good"}))
    tokenizer = load_tokenizer(bases["llama"], "classification")

    row = TokenizedOnDemand(data, tokenizer, SPEC_OF)[0]
    bare = TokenizedOnDemand(data, load_tokenizer(bases["bert"], "classification"), SPEC_OF)

    templated = AutoTokenizer.from_pretrained(bases["llama"]).apply_chat_template(
        chat, tokenize=False
    )
    assert (tokenizer.decode(row.ids[:-1]), row.ids[-1]) == (templated, 1)
    with pytest.raises(ValueError, match="line 1: The base model has no chat template"):
        bare[0]


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        ({"text": "fine"}, "needs a string `label`"),
        ({"label": "good"}, "a string `text` or a list `messages`"),
        ({"text": "fine", "label": "ugly"}, "the label 'ugly' is not one"),
    ],
)
def test_a_row_that_lacks_something_is_named(
    row: object, lacks: str, bases: dict[str, Path], tmp_path: Path
) -> None:
    data = tmp_path / "texts.jsonl"
    data.write_text(json.dumps(row))
    source = TokenizedOnDemand(data, load_tokenizer(bases["llama"], "classification"), SPEC_OF)

    with pytest.raises(ValueError, match=f"texts.jsonl, line 1: .*{lacks}"):
        source[0]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name
@pytest.mark.parametrize(("kind", "lora"), [("llama", None), ("bert", LORA)])
def test_a_trained_classifier_loads_as_a_pipeline_that_names_the_labels(
    kind: str, lora: Lora | None, bases: dict[str, Path], tmp_path: Path
) -> None:
    base, spec = bases[kind], replace(SPEC_OF, lora=lora, max_seq_len=32, micro_batch=12)
    tokenizer = load_tokenizer(base, spec.method)
    torch.manual_seed(1)
    model = load_model(base, spec, {}, tokenizer.pad_token_id).train()
    source = TokenizedOnDemand(write_texts(tmp_path / "texts.jsonl", 12), tokenizer, spec)
    (batch,) = evaluation_batches(source, tokenizer.pad_token_id, spec, ME)

    losses = learn(model, batch, steps=60)
    folder = tmp_path / "model"
    write(model, spec, folder)
    copy_companions(base, folder, spec)

    assert losses[-1] < 0.2 < losses[0]
    classifier = pipeline("text-classification", model=str(folder))
    predictions = classifier(["it came and was late", "it came and was lovely"])
    assert [row["label"] for row in predictions] == ["bad", "good"]
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}


def learn(model: Any, batch: Batch, steps: int) -> list[float]:  # noqa: ANN401
    """Mean losses; every parameter that is trained has a gradient from the first step on."""
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=5e-3)
    losses = []
    for _ in range(steps):
        loss = ClassificationLoss().scores(model, batch).loss / 12
        optimizer.zero_grad()
        loss.backward()
        assert [n for n, p in trained.items() if p.grad is None] == []
        optimizer.step()
        losses.append(loss.item())
    return losses


def write(model: Any, spec: RunSpec, folder: Path) -> None:  # noqa: ANN401
    """As the export does it."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    if spec.lora is None:
        model.save_pretrained(folder, state_dict=weights)
        return
    model.get_base_model().save_pretrained(folder, state_dict=merge_adapters(model, weights))


def test_a_checkpoint_names_a_head_with_its_bias_and_its_labels() -> None:
    """As peft names them, and as `trainer/convert` asks for them."""
    config = BertConfig()
    config.update(sequence_head.head_settings(SPEC_OF, pad_id=3))
    head = "base_model.model.classifier.modules_to_save.default"

    assert {f"{head}.weight", f"{head}.bias"} <= set(
        trainable_names(["classifier.weight", "classifier.bias"])
    )
    assert (config.num_labels, config.pad_token_id) == (2, 3)
    assert (config.id2label, config.label2id) == ({0: "bad", 1: "good"}, {"bad": 0, "good": 1})
