"""What `docker pull` prints where it fails, by the code of a planted fault `pull_fails`.

The words are Docker's as users report them: microsoft/AzureTRE 861, Azure/acr 124, moby/moby 31430,
dstackai/dstack 2020.
"""

_DAEMON = "Error response from daemon: "
_MESSAGES = {
    "unauthorized": _DAEMON + 'Head "https://{registry}/v2/{name}/manifests/{tag}": unauthorized: '
    "authentication required, visit https://aka.ms/acr/authorization for more information.",
    "denied": _DAEMON + "pull access denied for {image}, repository does not exist or may require "
    "'docker login': denied: requested access to the resource is denied",
    "not_found": _DAEMON + "manifest for {image} not found: manifest unknown: manifest unknown",
    "no_space": "failed to register layer: write /opt/conda/lib/libmkl_avx.so.2: no space left on "
    "device",
    "timeout": _DAEMON + 'Get "https://{registry}/v2/": net/http: request canceled while waiting '
    "for connection (Client.Timeout exceeded while awaiting headers)",
    "unknown_host": _DAEMON + 'Get "https://{registry}/v2/": dial tcp: lookup {registry} on '
    "127.0.0.53:53: no such host",
}
CODES = tuple(_MESSAGES)


def refusal_message(code: str, image: str) -> str:
    """Return what docker prints about this image."""
    path, _, tag = image.partition("@")[0].partition(":")
    first, slash, repository = path.partition("/")
    named = slash and ("." in first or ":" in first)
    registry, name = (first, repository) if named else ("registry-1.docker.io", path)
    return _MESSAGES[code].format(image=image, registry=registry, name=name, tag=tag or "latest")
