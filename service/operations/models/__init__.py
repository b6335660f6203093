"""Operations on models: base models, checkpoints as models, references, deletion."""
