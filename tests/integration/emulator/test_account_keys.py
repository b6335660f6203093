"""The keys that the emulator's Resource Manager lists open the account's blobs in Azurite."""

from pathlib import Path

from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.emulated.inside import GROUP_ID
from tests.emulated.process import VERSION, Emulator


async def test_the_keys_of_the_account_open_its_blobs(azurite: Azurite, tmp_path: Path) -> None:
    account = dict(part.split("=", 1) for part in azurite.connection_string.split(";") if part)
    root = account["BlobEndpoint"].rstrip("/").removesuffix("/" + account["AccountName"])
    blobs = ("--blob-endpoint", root, "--blob-key", account["AccountKey"])
    emulator = Emulator(tmp_path, "--hollow", *blobs)
    emulator.make_group()
    with emulator.signed_in() as client:
        url = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/{account['AccountName']}"
        asked = {"location": "eastus", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
        made = client.put(url + VERSION, json=asked).raise_for_status().json()
        keys = client.post(f"{url}/listKeys{VERSION}").raise_for_status().json()["keys"]
    emulator.stop()
    store = AzureBlobStore(
        f"DefaultEndpointsProtocol=http;AccountName={made['name']};AccountKey={keys[0]['value']};"
        f"BlobEndpoint={made['properties']['primaryEndpoints']['blob']}"
    )
    await store.create_container("from-arm")
    await store.write("from-arm", "hello", b"world")

    data, _ = await store.read("from-arm", "hello")

    assert data == b"world"
    await store.close()
