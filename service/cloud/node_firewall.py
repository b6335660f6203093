"""The firewall of a node: a root script on the machine, and the systemd unit that runs it.

Jobs of all projects share a subnet. A node's rules let in SSH (the subnet's security group says
from where) and the members of the current generation, nothing else. The supervisor, which has no
rights over the machine, names the members (`trainer/supervisor/machine/firewall.py`): at worst it
opens its own node. InfiniBand is let in: Azure separates scale sets by partition keys.

Of the machine's own calls, the metadata service answers only root and the container's user, because
it hands out the node's identity. Only root reaches Azure's other service for machines.
"""

SCRIPT_PATH = "/usr/local/sbin/rekindle-firewall"
UNIT = "rekindle-firewall.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
DOOR = "/run/rekindle"  # mounted into the container

# `iptables-restore --noflush` replaces the chains that it names, each table in one step, and
# leaves Docker's own alone. IPv6 has no members.
SCRIPT = r"""\
#!/bin/sh
set -eu
door={door}

restore() {{ "$1-restore" --wait 30 --noflush; }}

inbound() {{
  cat <<END
*filter
:REKINDLE-IN - [0:0]
-A REKINDLE-IN -i lo -j ACCEPT
-A REKINDLE-IN -i ib+ -j ACCEPT
-A REKINDLE-IN -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A REKINDLE-IN -p $1 -j ACCEPT
-A REKINDLE-IN -p udp --sport $2 --dport $3 -j ACCEPT
-A REKINDLE-IN -p tcp --dport 22 -j ACCEPT
-A REKINDLE-IN -j REKINDLE-MEMBERS
-A REKINDLE-IN -j DROP
END
}}

outbound() {{
  cat <<END
:REKINDLE-OUT - [0:0]
-A REKINDLE-OUT -m owner --uid-owner 0 -j RETURN
-A REKINDLE-OUT -d 169.254.169.254 -m owner --uid-owner {user} -j RETURN
-A REKINDLE-OUT -d 169.254.169.254 -j REJECT
-A REKINDLE-OUT -d 168.63.129.16 -p tcp ! --dport 53 -j REJECT
END
}}

# Built-in chains belong to others as well: the jump goes first, and is there once.
jump() {{
  "$1" --wait 30 -C "$2" -j "$3" 2>/dev/null || "$1" --wait 30 -I "$2" 1 -j "$3"
}}

# Members stay when this starts again.
setup() {{
  iptables --wait 30 -N REKINDLE-MEMBERS 2>/dev/null || true
  {{ inbound icmp 67 68; outbound; echo COMMIT; }} | restore iptables
  jump iptables INPUT REKINDLE-IN
  jump iptables OUTPUT REKINDLE-OUT
  if [ -e /proc/net/if_inet6 ]; then
    ip6tables --wait 30 -N REKINDLE-MEMBERS 2>/dev/null || true
    {{ inbound ipv6-icmp 547 546; echo COMMIT; }} | restore ip6tables
    jump ip6tables INPUT REKINDLE-IN
  fi
  mkdir -p "$door"
  [ -p "$door/members" ] || mkfifo -m 0620 "$door/members"
  chown 0:{user} "$door/members"
}}

# NUMBER ADDRESS..., from a user whom the machine does not trust.
admit() {{
  case $1 in *[!0-9.\ ]*) return 1 ;; esac
  echo '*filter'
  echo ':REKINDLE-MEMBERS - [0:0]'
  for address in ${{1#* }}; do
    echo "-A REKINDLE-MEMBERS -s $address/32 -j ACCEPT"
  done
  echo COMMIT
}}

watch() {{
  set -f
  exec 3<>"$door/members"
  while read -r line <&3; do
    if rules=$(admit "$line") && echo "$rules" | restore iptables; then
      echo "$line" >"$door/applied.new"
      mv "$door/applied.new" "$door/applied"
    else
      printf 'not admitted: %s\n' "$line" >&2
    fi
  done
}}

"$1"
"""

# Docker, and with it the container, does not start on a machine that has no rules.
_UNIT = f"""\
[Unit]
Description=Rekindle: only members of the generation reach this node
Wants=network-pre.target
After=network-pre.target
Before=docker.service
StartLimitIntervalSec=0

[Service]
ExecStartPre={SCRIPT_PATH} setup
ExecStart={SCRIPT_PATH} watch
Restart=always
RestartSec=1

[Install]
RequiredBy=docker.service
"""


def files(user: int) -> list[dict[str, str]]:
    """Return the files for cloud-init to write; ``user`` is the id of the container's user."""
    script = SCRIPT.format(door=DOOR, user=user)
    return [
        {"path": SCRIPT_PATH, "permissions": "0755", "content": script},
        {"path": UNIT_PATH, "permissions": "0644", "content": _UNIT},
    ]
