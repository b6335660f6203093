"""Specify the scale set of an attempt. The same attempt always gives the same specification."""

from dataclasses import dataclass

from service import tracing
from service.cloud import cloud_init
from service.cloud.provider import ATTEMPT_TAG, JOB_TAG, OWNER_TAG
from service.db.attempts.attempts import AttemptRow
from service.domain import tokens
from service.domain.cloud.fleet import ScaleSetSpec, scale_set_name
from service.domain.performance import vm_catalogue
from trainer.contract import PROTOCOL, STORAGE_INGRESS, ExpectedHardware, NodeConfig


@dataclass(frozen=True, kw_only=True)
class SpecMaker:
    """Makes specifications: the address that nodes call, their credentials, and what they run."""

    public_url: str
    secret: str
    image: str
    accelerator: str
    deployment: str
    storage_ingress: float = STORAGE_INGRESS  # bytes a second that the account takes
    identity: str = ""  # resource id of who pulls the image, on the node

    def spec(self, row: AttemptRow) -> ScaleSetSpec:
        """Return the specification of the attempt's scale set."""
        config = NodeConfig(
            protocol=PROTOCOL,
            service_url=self.public_url,
            attempt_id=row.id,
            bootstrap_token=tokens.bootstrap_token(self.secret, row.id),
            accelerator=self.accelerator,
            processes_per_node=row.processes_per_node,
            storage_ingress=self.storage_ingress,
            hardware=self._hardware(row),
            vm_size="" if row.offering.has_metadata else row.offering.vm_size,
            traceparent=tracing.traceparent(row.job_id, row.id),
        )
        return ScaleSetSpec(
            name=scale_set_name(row.id),
            offering=row.offering,
            instance_count=row.instance_count,
            cloud_init=cloud_init.render(
                config.to_json(), self.image, self.accelerator, self.identity
            ),
            node_config=config.to_json(),
            image=self.image,
            tags={OWNER_TAG: self.deployment, ATTEMPT_TAG: row.id, JOB_TAG: row.job_id},
        )

    def _hardware(self, row: AttemptRow) -> ExpectedHardware | None:
        """Return the hardware that nodes verify before they join.

        A single machine needs no InfiniBand.
        """
        sku = vm_catalogue.lookup(row.offering.vm_size)
        if sku is None or self.accelerator != "cuda":
            return None
        return ExpectedHardware(
            gpus=sku.gpus,
            gpu_memory_gib=sku.gpu_memory_gib,
            nvlink_gbytes=sku.nvlink_gbytes if sku.gpus > 1 else 0,
            infiniband_gbps=sku.infiniband_gbps if row.instance_count > 1 else 0,
        )
