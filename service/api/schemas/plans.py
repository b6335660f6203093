"""Plans and their simulations: where a job would run, how long it takes, what it costs."""

from typing import Literal

from pydantic import JsonValue

from service.api.schemas.base import Answer, Money, Stored, UnixTime


class Memory(Stored):
    """Predicted memory of one GPU in bytes, by what holds it."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    update: int
    """Temporary buffers of the optimizer step."""
    buffers: int
    """DeepSpeed's buckets and gathered parameters."""
    runtime: int
    """CUDA context, workspaces of kernels, NCCL."""
    cache: int = 0
    """Key-value cache of answers during a rollout."""
    host: int = 0
    """Memory of the process on the host, not on the GPU."""
    total: int
    needed: int
    """The total with its safety margin."""


class Option(Stored):
    """One offering with the best layout on it; times in seconds."""

    region: str
    vm_size: str
    capacity_type: Literal["spot", "on_demand"]
    engine: Literal["scale_set", "azureml"] = "scale_set"
    """What runs the machines: a scale set, or a cluster in the Azure ML workspace."""
    hourly: Money
    """Price of one machine."""
    on_demand_hourly: Money
    nodes: int
    processes_per_node: int
    zero_stage: int
    micro_batch: int
    accumulation: int
    global_batch: int
    total_steps: int
    memory: Memory
    seconds_per_step: float
    expected_evictions: float
    duration_p50: float
    """From the request to the final model."""
    duration_p90: float
    cost_p50: Money
    cost_p90: Money
    on_demand_cost: Money
    save_seconds: float
    """Seconds that a budget reserves to save this job."""


class Recipe(Stored):
    """Every number of the training that does not depend on the machines."""

    n_epochs: int
    batch_size: int
    global_batch: int
    total_steps: int
    learning_rate: float
    max_seq_len: int
    precision: str


class Plan(Option):
    """The chosen option, and the other ones."""

    currency: Literal["USD"]
    recipe: Recipe
    options: list[Option]
    """Places with the same layout, cheapest first; the first one is chosen."""
    alternatives: list[Option]
    """Other layouts."""
    rejected: list[str]
    """Offerings that cannot be used, with the reason."""
    why: str
    warnings: list[str]
    elastic: dict[str, JsonValue] | None = None
    data: dict[str, JsonValue] | None = None
    """Counts of the check of the rows; null: lengths are estimates."""


class ExpectedSeconds(Answer):
    """From the request to the final model."""

    p50: int
    p90: int


class ExpectedCost(Answer):
    """Of the whole job."""

    p50: Money
    p90: Money


class OfferedOption(Option):
    """An option with what it means for the budget and the deadline of the request."""

    gpu_memory_gib: int | None
    """Memory of one GPU; null: the size is not in the catalogue."""
    eta_seconds: ExpectedSeconds
    cost: ExpectedCost
    budget_needed: Money
    """The least budget that nine of ten such jobs keep, with the reserve to save the job."""
    seconds_needed: float
    """The least time until a deadline that nine of ten such jobs keep."""
    fits_budget: bool | None
    """Nine of ten such jobs cost no more; null: no budget."""
    meets_deadline: float | None
    """Probability; null: no deadline."""


class OfferedPlan(Plan):
    """A plan without a job."""

    options: list[OfferedOption]  # type: ignore[assignment]  # the options' members and more
    alternatives: list[OfferedOption]  # type: ignore[assignment]  # the same


class JobPlan(Answer):
    """The answer to a dry run: the plan of a job that was not created."""

    object: Literal["fine_tuning.job.plan"] = "fine_tuning.job.plan"
    model: str
    plan: OfferedPlan


class Suggestion(Answer):
    """Another way to run the same training, with its cost and duration."""

    aim: Literal["cheaper", "faster"]
    change: str
    """What to change in the request."""
    cost_p50: Money
    cost_p90: Money
    duration_p50: float
    """Seconds."""
    duration_p90: float


class StoredPlan(Answer):
    """A plan that a job can be created from until it expires."""

    id: str
    object: Literal["fine_tuning.plan"] = "fine_tuning.plan"
    created_at: UnixTime
    expires_at: UnixTime
    model: str
    chosen: OfferedOption
    """Where the job would start."""
    next: list[OfferedOption]
    """The next three offerings, for when the chosen one has no capacity."""
    suggestions: list[Suggestion]
    """Changes that make it cheaper or faster."""
    plan: OfferedPlan
    """The whole plan, as the job would show it."""


class Dollars(Answer):
    """US dollars as decimal strings, at three percentiles."""

    p10: str
    p50: str
    p90: str


class Spread(Answer):
    """A value at three percentiles; null where a simulated job has no end."""

    p10: float | None
    p50: float | None
    p90: float | None


class Way(Answer):
    """One strategy for the job, over all simulations."""

    name: Literal["rekindle", "spot_only", "on_demand"]
    dollars: Dollars
    hours: Spread
    evictions: Spread
    in_time_pct: float | None
    unfinished_pct: float
    on_demand_pct: float
    currency: Literal["USD"]


class Simulation(Answer):
    """Simulated cost and duration of the job's plan."""

    object: Literal["simulation"] = "simulation"
    job: str
    lives: int
    deadline_hours: float | None
    ways: list[Way]
