"""An attempt says which engine runs its machines: a scale set, or a cluster in Azure ML."""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Every machine so far was a scale set's. Shortages are of one engine each."""
    op.execute(
        """
        alter table attempts
            add column engine text not null default 'scale_set',
            add constraint attempts_engine_check check (engine in ('scale_set', 'azureml'));
        drop index attempts_lives, attempts_refusals;
        create index attempts_lives on attempts (region, vm_size, capacity_type, engine, created_at)
            where ran_at is not null;
        create index attempts_refusals
            on attempts (region, vm_size, capacity_type, engine, created_at)
            where outcome = 'no_capacity';
        alter table shortages
            add column engine text not null default 'scale_set',
            drop constraint shortages_pkey,
            add constraint shortages_pkey primary key (region, vm_size, capacity_type, engine);
        create index jobs_to_register on jobs (id) where request @> '{"register_model": true}'
        """
    )


def downgrade() -> None:
    """The release before knows no cluster: none may be live."""
    op.execute(
        """
        drop index jobs_to_register;
        delete from shortages where engine <> 'scale_set';
        alter table shortages
            drop constraint shortages_pkey,
            drop column engine,
            add constraint shortages_pkey primary key (region, vm_size, capacity_type);
        drop index attempts_lives, attempts_refusals;
        create index attempts_lives on attempts (region, vm_size, capacity_type, created_at)
            where ran_at is not null;
        create index attempts_refusals on attempts (region, vm_size, capacity_type, created_at)
            where outcome = 'no_capacity';
        alter table attempts drop column engine
        """
    )
