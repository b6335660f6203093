"""The cloud-init of a node: write its configuration, start the supervisor's container.

The same text boots a VM in Azure and an emulated one. Beyond GPUs, disks and Azure's registries it
uses only `sh`, `curl`, `date`, `uptime`, `systemctl` and `docker`. It leaves the duration of each
step in TIMES_PATH; `trainer/supervisor/machine/boot_times.py` reads it. The current step and
Docker's errors go to the service at once (`boot_report.py`).
"""

import json
import shlex
from urllib.parse import quote

from service.cloud import boot_report, node_firewall

CONFIG_PATH = "/etc/rekindle/node.json"
REPORT = f"{boot_report.SCRIPT_PATH} {CONFIG_PATH}"
TIMES_PATH = "/etc/rekindle/boot-times"  # lines of NAME START END, in unix seconds
XIDS_PATH = "/etc/rekindle/xids"  # `trainer/supervisor/machine/health.py` reads it
USER = "10001:10001"  # who runs in the trainer image (docker/trainer.Dockerfile)
PROCESSES = 16384  # and threads, that the container may have: 8 ranks of a large machine need 5,000
WORK_PATH = "/mnt/rekindle"  # on the VM: local NVMe where there is some, else the temporary disk

_END = "tail -c 400 | tr '\\n' ' '"  # of what a program said in a try: one line
_PULLS, _PAUSE = 10, 20  # tries, seconds between two

# Local NVMe disks become one ext4. Only disks of Azure's own model without partition, file
# system or RAID on them are touched; without any, the path stays on the disk it is on.
_MOUNT_LOCAL_DISKS = f"""\
set -eu
exec 2>&1
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

_AWAIT_DRIVER = f"""\
tries=0
until out=$(nvidia-smi 2>&1); do
  [ $tries -lt 150 ] || {{ {REPORT} await_driver failed "$(echo "$out" | {_END})"; break; }}
  tries=$((tries + 1))
  sleep 2
done
"""

# The image comes while disks and driver get ready; what is there already is not pulled.
_PREPARE = """\
now() {{ date +%s.%N; }}
took() {{ echo "$1 $2 $(now)" >>{times}; }}
began=$(now)
echo "vm_boot $(date -d "$(uptime -s)" +%s) $began" >>{times}
( {pull}
took pull_image $began ) &
{devices}wait
echo "start_supervisor $(now)" >>{times}
"""

# The node's identity signs in to an Azure registry; no token is an argument that a process list
# shows. Where it fails the pull is tried all the same: it may be open to everybody. The identity is
# named: Azure policies add others, and then IMDS refuses (several of the user's) or answers for the
# system's. `msi_res_id` is IMDS' name for a resource id (azure-sdk-for-go, pull request 22650).
_LOGIN = """\
said() {{ awk -F'"' -v RS=, -v name=$1 '$2 == name {{ printf "%s", $4 }}'; }}
ask() {{ curl -sS --max-time 20 "$@"; }}
login() {{
  ask -H Metadata:true 'http://169.254.169.254/metadata/identity/oauth2/token\
?api-version=2018-02-01&resource=https://management.azure.com/{identity}' | said access_token |
    ask https://{registry}/oauth2/exchange -d grant_type=access_token -d service={registry} \
      --data-urlencode access_token@- | said refresh_token |
    docker login {registry} --username {nobody} --password-stdin
}}
"""
_NOBODY = "00000000-0000-0000-0000-000000000000"  # who signs in with a token, to a registry

# In a list with || the shell would go on after a command that fails, `set -e` or not.
_DEVICES = f"""\
{REPORT} mount_disks begun
out=$(
{_MOUNT_LOCAL_DISKS})
[ $? -eq 0 ] || {REPORT} mount_disks failed "$(echo "$out" | {_END})"
took mount_disks $began
began=$(now)
{REPORT} await_driver begun
{_AWAIT_DRIVER}took await_driver $began
"""

# A fresh identity may be refused for two minutes (kubernetes/kubernetes issue 92326): pulls are
# retried for three. Each failed try is reported with those before it, one line each.
_PULL = """\
{report} pull_image begun
  tries= n=0
  until out=$({{ {pull}; }} 2>&1); do
    tries="$tries$(echo "$out" | {end})
"
    n=$((n + 1))
    [ $n -lt {most} ] || {{ {report} pull_image gave_up "$tries"; break; }}
    {report} pull_image failed "$tries"
    sleep {pause}
  done"""

# Systemd tries the firewall again each second by itself.
_START = f"""\
tries=0
until out=$(systemctl enable --now {node_firewall.UNIT} 2>&1); do
  tries=$((tries + 1))
  [ $tries -lt 5 ] || {{ {REPORT} firewall gave_up "$(echo "$out" | {_END})"; exit 1; }}
  sleep 3
done
{REPORT} start_supervisor begun
out=$(%s 2>&1) || {REPORT} start_supervisor gave_up "$(echo "$out" | {_END})"
"""
# The container may not read the kernel's log. The first 1,000 errors of a boot are kept, so that a
# GPU which fails all the time does not fill the disk; /etc/rekindle is mounted into the container.
XIDS_UNIT = "rekindle-xids.service"
_XIDS_SERVICE = f"""\
[Unit]
Description=Copy the NVIDIA driver's Xid errors to where Rekindle's container reads them

[Service]
ExecStart=/bin/sh -c "dmesg --follow | grep --line-buffered -m 1000 'NVRM: Xid' >{XIDS_PATH}"

[Install]
WantedBy=multi-user.target
"""
_XIDS_FILE = {
    "path": f"/etc/systemd/system/{XIDS_UNIT}",
    "permissions": "0644",
    "content": _XIDS_SERVICE,
}

# Docker refuses a device that is not there, and not every GPU size has InfiniBand.
_INFINIBAND = "$(test -d /dev/infiniband && echo --device=/dev/infiniband)"

# Azure's HPC images say there how a size's GPUs and network cards lie; NCCL cannot see it in a VM.
# The files are baked in, nccl.conf is written at boot, maybe later than this
# (Azure/azhpc-images, components/setup_sku_customizations.sh).
_TOPOLOGY = (
    "$(test -f /etc/nccl.conf && echo --volume=/etc/nccl.conf:/etc/nccl.conf:ro)",
    "$(test -d /opt/microsoft && echo --volume=/opt/microsoft:/opt/microsoft:ro)",
)


def render(config_json: str, image: str, accelerator: str, identity: str = "") -> str:
    """Return the #cloud-config of every node of an attempt.

    ``accelerator``: cuda or cpu; ``identity``: resource id of the identity that pulls the image.
    """
    cuda = accelerator == "cuda"
    document = {
        "write_files": [
            {"path": CONFIG_PATH, "permissions": "0600", "content": config_json},
            {"path": TIMES_PATH, "permissions": "0600", "content": ""},
            boot_report.file(),
            *node_firewall.files(int(USER.partition(":")[0])),
            *([_XIDS_FILE] if cuda else []),
        ],
        "runcmd": [
            ["sh", "-c", _prepare(image, identity, cuda=cuda)],
            *([["sh", "-c", f"systemctl enable --now {XIDS_UNIT}"]] if cuda else []),
            ["sh", "-c", _change_owner_command()],
            ["sh", "-c", _run(image, cuda=cuda)],
        ],
    }
    return f"#cloud-config\n{json.dumps(document, indent=1)}\n"  # JSON is YAML


def _prepare(image: str, identity: str, *, cuda: bool) -> str:
    devices = _DEVICES if cuda else ""
    return _PREPARE.format(times=TIMES_PATH, pull=_pull(image, identity), devices=devices)


def _pull(image: str, identity: str) -> str:
    """Return the command that pulls the image, with retries: registries fail now and then."""
    inspect = shlex.join(["docker", "image", "inspect", image])
    pull = shlex.join(["docker", "pull", "--quiet", image])
    registry, login = image.partition("/")[0], ""
    if registry.endswith(".azurecr.io"):
        identity_query = f"&msi_res_id={quote(identity)}" if identity else ""
        login = _LOGIN.format(registry=registry, nobody=_NOBODY, identity=identity_query)
        pull = f"login; {pull}"
    tries = _PULL.format(report=REPORT, pull=pull, end=_END, most=_PULLS, pause=_PAUSE)
    return f"{login}{inspect} >/dev/null 2>&1 || {{ {tries}; }}"


def _change_owner_command() -> str:
    """Return the command that gives the files to the container's user, which is not root."""
    user, group = USER.split(":")
    return (
        f"chown {USER} {CONFIG_PATH} {TIMES_PATH}; "
        f"install -d -m 0700 -o {user} -g {group} {WORK_PATH}"
    )


def _run(image: str, *, cuda: bool) -> str:
    """Return the command that starts the container; without a firewall it does not start."""
    command = shlex.join(
        [
            *("docker", "run", "--detach", "--name", "rekindle", "--restart", "unless-stopped"),
            *("--network", "host", "--ipc", "host", "--ulimit", "memlock=-1"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--read-only", "--tmpfs", "/tmp:exec"),  # noqa: S108 - torch.compile runs from there
            *("--pids-limit", str(PROCESSES)),
            *("--volume", f"{node_firewall.DOOR}:{node_firewall.DOOR}:ro"),
            *("--stop-timeout", "40"),  # a supervisor saves before it ends
            *("--volume", "/etc/rekindle:/etc/rekindle:ro"),
            *("--volume", f"{WORK_PATH}:/var/lib/rekindle"),
            *("--env", f"REKINDLE_NODE_CONFIG={CONFIG_PATH}"),
            *("--volume", "/dev/shm:/dev/shm"),  # noqa: S108 - saves lie in memory
            *("--env", "REKINDLE_WORK_DIR=/var/lib/rekindle"),
            *("--env", "REKINDLE_MEMORY_DIR=/dev/shm/rekindle"),
            *(("--gpus", "all") if cuda else ()),
        ]
    )
    devices = [_INFINIBAND, *_TOPOLOGY] if cuda else []
    run = " ".join([command, *devices, shlex.quote(image)])
    return _START % run
