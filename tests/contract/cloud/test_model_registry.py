"""Contract of ModelRegistry: the fake, and the real client with an emulated workspace."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from service.cloud.azureml.model_registry import ModelRegistry, RegisteredModel
from service.cloud.fake import FakeRegistry
from service.cloud.provider import CloudError
from tests.contract.cloud import workspaces
from tests.emulated.azureml import OLD, WORKSPACE
from tests.emulated.process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore")  # azure-ai-ml and what it imports
BLOB = "https://account.blob.core.windows.net"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """One registry, with a function to read its models and one to break it."""

    seam: ModelRegistry
    look: Callable[[RegisteredModel], Awaitable[RegisteredModel]]
    break_off: Callable[[], None]


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with workspaces.server(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(params=["fake", "emulator"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Registry]:
    if request.param == "fake":
        yield _fake()
        return
    models = _emulated(request.getfixturevalue("azure"))
    yield models
    await models.seam.close()


def _fake() -> Registry:
    fake = FakeRegistry()

    async def look(model: RegisteredModel) -> RegisteredModel:
        return fake.models[model.name, model.version]

    def break_off() -> None:
        fake.fault = CloudError("gone away")

    return Registry(seam=fake, look=look, break_off=break_off)


def _emulated(azure: Emulator) -> Registry:
    async def look(model: RegisteredModel) -> RegisteredModel:
        path = f"{WORKSPACE}/models/{model.name}/versions/{model.version}"
        with azure.signed_in() as client:
            properties = client.get(path, params=OLD).raise_for_status().json()["properties"]
        assert properties["modelType"] == "custom_model"
        return replace(model, url=properties["modelUri"], tags=properties["tags"])

    def break_off() -> None:
        fault = {"kind": "error", "path": "/models/", "status": 500, "count": 2}
        azure.admin("faults", fault).raise_for_status()

    return Registry(seam=workspaces.sign_in(azure, "owner"), look=look, break_off=break_off)


def a_model() -> RegisteredModel:
    job = f"ftjob-{uuid4().hex[:26]}"
    url = f"{BLOB}/{job}/models/step-00000240-0ccf61eb"
    return RegisteredModel(name=job, version="240", url=url, tags={"rekindle-job": job})


async def test_a_registry_that_fails_says_so(place: Registry) -> None:
    place.break_off()

    with pytest.raises(CloudError):
        await place.seam.register(a_model())


async def test_a_model_is_registered_once_with_its_folder_and_tags(place: Registry) -> None:
    model = a_model()
    for registration in (model, model, replace(model, url=f"{BLOB}/elsewhere")):
        await place.seam.register(registration)
        assert await place.look(model) == model
