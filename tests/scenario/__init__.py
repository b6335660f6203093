"""One world for whole lives of jobs; start reading here.

`scenario.py` holds everything: the real service on a real PostgreSQL, the shipped fakes of cloud
and storage, machines with the node's real rules and its real committer, one clock, one random
source. A test makes a `Scenario` in `worlds.a_world` and uses its verbs: `submit`, `train`,
`evict`, `request_command` and `finish` of a job, `pass_time`, `expect` and `run` of the scenario.

What a life consists of:

- `plays/play.py`: a play, one turn per round; `job_plays.py`, `trouble_plays.py` and
  `storage_plays.py` define the plays
- `plays/random_life.py`: a play in which anything may happen
- `job.py`; `machines/`: `machine.py`, `supervisor.py`, `trainer_process.py`: the job, and what runs
  on a VM
- `machines/wire.py`, `machines/job_container.py`: wires that lose, duplicate and delay messages
- `seams.py`: a hook at every effect and every commit of a replica, where a fault can strike it
- `replicas.py`, `crew.py`, `periodic_work.py`: the replicas, and what strikes them at random

Promises, and where they are checked in every life:

| promise | checked by |
|---|---|
| one live attempt per job; an outcome is known from terminating on | `promises.doubled` |
| every billed resource belongs to an attempt that knows it | `promises.unknown`, `leaked` |
| the ledger has every machine for as long as it existed | `promises.unbilled` |
| every move is in the life cycle's table and has its event, in order | `promises.disorder` |
| the service never applies older reports of a node | `promises.unordered_news` |
| HEAD never goes back; no stale generation commits; no commit is lost | `WatchedStore` |
| a committed checkpoint is complete and of one save | `WatchedStore.damaged` |
| HEAD is taken before a generation opens, with the newest checkpoint | `TrainerWatch.claim` |
| a job that has its model is not trained again | `TrainerWatch.claim`, `WatchedStore` |
| a node starts a generation once; one generation runs at a time | `TrainerWatch.start` |
| success has a model; every job ends | `Scenario.run` |
| a cancel is granted soon; a job fails only by its trainer | `plays/random_life.py` |
| an eviction is recorded at once; silence ends an attempt | rows of `test_plays.py` |
| an elastic job trains with allowed numbers of nodes | `promises.odd_sizes` |

A VM is one node, and a generation's number is used once, by constraints of the schema. Faults that
break these promises are planted in `tests/mutants/lives.toml`, each with the test that catches it.
`test_hazards.py` has the hazards that random lives found.
"""
