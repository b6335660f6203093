"""The script by which a booting machine reports its progress to the service.

It prints the same to the serial console and never waits: a silent service must not delay a boot.
The token is no argument that a process list shows.
"""

SCRIPT_PATH = "/usr/local/sbin/rekindle-report"

# CONFIGURATION PHASE SAID [TEXT]. The machine's name is what its supervisor will give, too.
_SCRIPT = """\
#!/bin/sh
config=$1
shift
echo "rekindle: $1 $2" >&2
[ -z "$3" ] || printf '%s\\n' "$3" >&2
[ -s "$config" ] || exit 0
said() { awk -F'"' -v RS=, -v name=$1 '$2 == name { printf "%s", $4 }' <"$config"; }
name() {
  curl -sf --max-time 5 -H Metadata:true "${REKINDLE_METADATA_URL:-http://169.254.169.254}\
/metadata/instance/compute/name?api-version=2021-02-01&format=text" || hostname
}
(
  where="$(said service_url)/internal/boots/$(said attempt_id)?phase=$1&said=$2&machine=$(name)"
  printf 'Authorization: Bearer %s\\n' "$(said bootstrap_token)" |
    curl -s --max-time 20 --retry 3 -H @- -H 'Content-Type: text/plain' --data-raw "$3" "$where"
) >/dev/null 2>&1 </dev/null &
"""


def file() -> dict[str, str]:
    """Return the file for cloud-init to write."""
    return {"path": SCRIPT_PATH, "permissions": "0755", "content": _SCRIPT}
