"""The script by which a booting machine tells the service how it goes.

It prints the same to the serial console, and waits for nothing: a service that does not answer must
not delay a boot. The token is no argument that a process list shows.
"""

SCRIPT_PATH = "/usr/local/sbin/rekindle-report"

# PHASE SAID [TEXT]. The machine's name is the metadata service's, as its supervisor's will be.
_SCRIPT = """\
#!/bin/sh
echo "rekindle: $1 $2" >&2
[ -z "$3" ] || printf '%s\\n' "$3" >&2
[ -s {config} ] || exit 0
said() {{ awk -F'"' -v RS=, -v name=$1 '$2 == name {{ printf "%s", $4 }}' <{config}; }}
name() {{
  curl -sf --max-time 5 -H Metadata:true "${{REKINDLE_METADATA_URL:-http://169.254.169.254}}\
/metadata/instance/compute/name?api-version=2021-02-01&format=text" || hostname
}}
(
  where="$(said service_url)/internal/boots/$(said attempt_id)?phase=$1&said=$2&machine=$(name)"
  printf 'Authorization: Bearer %s\\n' "$(said bootstrap_token)" |
    curl -s --max-time 20 --retry 3 -H @- -H 'Content-Type: text/plain' --data-raw "$3" "$where"
) >/dev/null 2>&1 </dev/null &
"""


def file(config_path: str) -> dict[str, str]:
    """Return the file for cloud-init to write; ``config_path``: of the node's configuration."""
    content = _SCRIPT.format(config=config_path)
    return {"path": SCRIPT_PATH, "permissions": "0755", "content": content}
