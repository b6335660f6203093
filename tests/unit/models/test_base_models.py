"""The catalogue of base models: shapes that come to the published numbers of parameters."""

from dataclasses import replace

import pytest

from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.models.base_models import BASE_MODELS, lookup
from service.domain.models.trained_parameters import trained_parameters
from service.domain.performance import vm_catalogue
from service.domain.performance.layout import LayoutRequest, MemoryShortfall, fit, refusal
from service.domain.performance.memory import MicroStep, estimate
from service.domain.training.recipe import Hyperparameters, Training, resolve
from tests.unit.planning.test_reinforcement_plan import PPO
from trainer.contract import Lora, TrainingOptions

LORA = Lora(rank=16, alpha=32, dropout=0.0)
PPO_OF_CHATS = Training(method="reinforcement", reinforcement=PPO, max_seq_len=1024)
# As the models' cards, papers or safetensors say.
PUBLISHED = {
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-27b-it": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/phi-4": 14_659_507_200,
    "facebook/opt-1.3b": 1_315_758_080,
    "facebook/opt-30b": 29_974_540_288,
    "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-xl": 1_557_611_200,
    "google-bert/bert-base-uncased": 109_482_240,
    "google-bert/bert-large-uncased": 335_141_888,
    "FacebookAI/roberta-base": 124_645_632,
}


def shape(name: str) -> Architecture:
    architecture = lookup(name)
    assert architecture is not None, name
    return Architecture.from_config(architecture.config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parameters_of_catalogued_models_are_those_published(name: str) -> None:
    assert shape(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-0.6B"])
def test_all_layers_with_embedding_and_head_are_the_whole_model(name: str) -> None:
    arch = shape(name)
    options = TrainingOptions(train_last_n_layers=1, train_embeddings=False)
    layers = TrainingOptions(train_last_n_layers=arch.layers)
    head = 0 if arch.tied else arch.embedding_parameters

    assert trained_parameters(arch, TrainingOptions()) == PUBLISHED[name]
    assert trained_parameters(arch, layers) == PUBLISHED[name]
    assert trained_parameters(arch, options) == arch.layer_parameters + head + arch.hidden_size


def test_every_entry_has_a_shape_a_context_and_a_licence_and_one_name() -> None:
    assert len({model.name.lower() for model in BASE_MODELS}) == len(BASE_MODELS) > 70
    for model in BASE_MODELS:
        assert shape(model.name).parameters > 10**8
        assert model.context >= 512
        assert model.licence


def test_names_are_found_however_they_are_written_with_the_positions_that_can_be_used() -> None:
    assert lookup("QWEN/qwen3-8b") == lookup("Qwen/Qwen3-8B")
    assert lookup("somebody/else") is None
    assert shape("FacebookAI/roberta-base").max_positions == 512


def test_an_encoder_learns_to_classify_and_nothing_else() -> None:
    bert, hyper = shape("google-bert/bert-base-uncased"), Hyperparameters()
    classifying = Training(method="classification")

    recipe = resolve(hyper, classifying, examples=1000, arch=bert, world=8)

    assert recipe.max_seq_len == 512
    with pytest.raises(InvalidRequest, match="writes no text") as refused:
        resolve(hyper, Training(), examples=1000, arch=bert, world=8)
    assert refused.value.param == "method.type"


@pytest.mark.parametrize(
    "name", ["mistralai/Mistral-7B-Instruct-v0.3", "Qwen/Qwen2.5-14B", "Qwen/Qwen3-32B"]
)
def test_rows_of_models_with_plain_attention_may_be_packed(name: str) -> None:
    assert resolve(Hyperparameters(), Training(packing=True), examples=9, arch=shape(name)).packing


def test_logits_that_something_happens_to_are_not_made_in_chunks() -> None:
    chunked = Training(loss_chunk=1024)

    with pytest.raises(InvalidRequest, match="with this base model"):
        resolve(Hyperparameters(), chunked, examples=9, arch=shape("google/gemma-2-2b"), world=1)


@pytest.mark.parametrize(("rank", "layers"), [(8, 12), (16, 12)])
def test_adapters_of_fused_matrices_are_counted_by_the_matrices_that_there_are(
    rank: int, layers: int
) -> None:
    """GPT-2: (768 + 2304) + (768 + 768) + (768 + 3072) + (3072 + 768) per layer and rank."""
    assert shape("openai-community/gpt2").lora_parameters(rank) == layers * rank * 12_288


def test_attention_that_writes_down_every_pair_needs_memory_with_the_square_of_the_length() -> None:
    def activations(name: str, seq_len: int) -> int:
        needs = estimate(
            shape(name),
            MicroStep(samples=1, seq_len=seq_len),
            zero_stage=1,
            world=1,
            options=TrainingOptions(lora=Lora(rank=8, alpha=16, dropout=0.0)),
        )
        return needs.activations

    gemma, llama = "google/gemma-2-9b", "meta-llama/Llama-3.1-8B"
    assert activations(llama, 8192) == 4 * activations(llama, 2048)
    assert activations(gemma, 8192) > 8 * activations(gemma, 2048)


def test_embeddings_narrower_than_the_layers_are_refused() -> None:
    architecture = lookup("facebook/opt-125m")
    assert architecture is not None

    with pytest.raises(InvalidRequest, match="word_embed_proj_dim"):
        Architecture.from_config(architecture.config | {"word_embed_proj_dim": 512})


@pytest.mark.parametrize(
    ("name", "training", "param"),
    [
        ("openai-community/gpt2", Training(lora=LORA), "training.adapter"),
        ("facebook/opt-1.3b", PPO_OF_CHATS, "method.reinforcement.algorithm"),
        ("google/gemma-3-1b-it", PPO_OF_CHATS, "method.reinforcement.algorithm"),
    ],
)
def test_what_the_trainer_cannot_do_with_a_family_is_refused_before_it_is_paid_for(
    name: str, training: Training, param: str
) -> None:
    with pytest.raises(InvalidRequest, match="with this base model") as refused:
        resolve(Hyperparameters(), training, examples=1000, arch=shape(name), world=1)

    assert refused.value.param == param


def test_nobody_is_advised_what_would_be_refused() -> None:
    """Rows of GPT-2 that fit no GPU: neither adapters nor chunks would be taken."""
    sku = vm_catalogue.lookup("Standard_ND96asr_v4")
    assert sku is not None
    needs = LayoutRequest(
        arch=replace(shape("openai-community/gpt2-xl"), layers=2000, parameters=65 * 10**9),
        hyperparameters=Hyperparameters(),
        training=Training(),
        examples=1000,
        nodes=1,
        processes_per_node=None,
        max_nodes=1,
    )
    misfit = fit(needs, sku)

    assert isinstance(misfit, MemoryShortfall)
    assert "LoRA (rank" not in refusal(needs, misfit)
    assert "loss_chunk" not in refusal(needs, misfit)
