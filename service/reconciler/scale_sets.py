"""What to ask of the cloud for an attempt. The same attempt always gives the same text."""

from dataclasses import dataclass

from service.cloud import cloud_init
from service.cloud.provider import ATTEMPT_TAG, JOB_TAG, OWNER_TAG
from service.db.attempts import AttemptRow
from service.domain import tokens
from service.domain.fleet import ScaleSetSpec, scale_set_name
from trainer.contract import PROTOCOL, NodeConfig


@dataclass(frozen=True, kw_only=True)
class SpecMaker:
    """Knows where nodes call, how they prove who they are, and what they run."""

    public_url: str
    secret: str
    image: str
    accelerator: str
    deployment: str
    identity: str = ""  # resource id of who pulls the image, on the node

    def spec(self, row: AttemptRow) -> ScaleSetSpec:
        """The scale set of this attempt."""
        config = NodeConfig(
            protocol=PROTOCOL,
            service_url=self.public_url,
            attempt_id=row.id,
            bootstrap_token=tokens.bootstrap_token(self.secret, row.id),
            accelerator=self.accelerator,
            processes_per_node=row.processes_per_node,
        )
        return ScaleSetSpec(
            name=scale_set_name(row.id),
            offering=row.offering,
            instance_count=row.instance_count,
            cloud_init=cloud_init.render(
                config.to_json(), self.image, self.accelerator, self.identity
            ),
            tags={OWNER_TAG: self.deployment, ATTEMPT_TAG: row.id, JOB_TAG: row.job_id},
        )
