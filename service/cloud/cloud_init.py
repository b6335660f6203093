"""The cloud-init of a node: leave its configuration, start the supervisor's container.

The same text boots a VM in Azure and an emulated one, so that beyond GPUs and disks it
uses `sh` and `docker` only.
"""

import json
import shlex

CONFIG_PATH = "/etc/rekindle/node.json"
WORK_PATH = "/mnt/rekindle"  # on the VM: local NVMe where there is some, else the temporary disk

# Local NVMe disks become one ext4. Only disks of Azure's own model without partition, file
# system or RAID on them are touched; without any, the path stays on the disk it is on.
_MOUNT_LOCAL_DISKS = f"""\
set -eu
blank=
for disk in $(lsblk -dnpo NAME,MODEL | awk '/Microsoft NVMe Direct Disk/ {{print $1}}'); do
  if [ "$(lsblk -no NAME "$disk" | wc -l)" -eq 1 ] && ! blkid -p "$disk"; then
    blank="$blank $disk"
  fi
done
set -- $blank
[ $# -gt 0 ] || exit 0
device=$1
if [ $# -gt 1 ]; then
  device=/dev/md/rekindle
  mdadm --create $device --run --level 0 --raid-devices $# "$@"
fi
mkfs.ext4 -q -L rekindle -E nodiscard $device
mkdir -p {WORK_PATH}
echo 'LABEL=rekindle {WORK_PATH} ext4 noatime,nofail 0 0' >>/etc/fstab
mount {WORK_PATH}
"""

_AWAIT_DRIVER = """\
tries=0
until nvidia-smi || [ $tries -ge 150 ]; do tries=$((tries + 1)); sleep 2; done
"""

# Docker refuses a device that is not there, and not every GPU size has InfiniBand.
_INFINIBAND = "$(test -d /dev/infiniband && echo --device=/dev/infiniband)"


def render(config_json: str, image: str, accelerator: str) -> str:
    """The #cloud-config that every node of an attempt gets; ``accelerator`` is cuda or cpu."""
    cuda = accelerator == "cuda"
    document = {
        "write_files": [
            {"path": CONFIG_PATH, "permissions": "0600", "content": config_json},
        ],
        "runcmd": [
            *([["sh", "-c", _MOUNT_LOCAL_DISKS], ["sh", "-c", _AWAIT_DRIVER]] if cuda else []),
            ["sh", "-c", _pull(image)],
            ["sh", "-c", _run(image, cuda=cuda)],
        ],
    }
    return f"#cloud-config\n{json.dumps(document, indent=1)}\n"  # JSON is YAML


def _pull(image: str) -> str:
    """Registries fail now and then; a node that boots in vain costs as much as one that works."""
    pull = shlex.join(["docker", "pull", "--quiet", image])
    return f"for try in 1 2 3 4 5 6; do {pull} && break; sleep 10; done"


def _run(image: str, *, cuda: bool) -> str:
    command = shlex.join(
        [
            *("docker", "run", "--detach", "--name", "rekindle", "--restart", "unless-stopped"),
            *("--network", "host", "--ipc", "host", "--ulimit", "memlock=-1"),
            *("--stop-timeout", "40"),  # a supervisor that is told to end saves first
            *("--volume", "/etc/rekindle:/etc/rekindle:ro"),
            *("--volume", f"{WORK_PATH}:/var/lib/rekindle"),
            *("--env", f"REKINDLE_NODE_CONFIG={CONFIG_PATH}"),
            *("--env", "REKINDLE_WORK_DIR=/var/lib/rekindle"),
            *(("--gpus", "all") if cuda else ()),
        ]
    )
    devices = [_INFINIBAND] if cuda else []
    return " ".join([command, *devices, shlex.quote(image)])
