"""Operations as Dagster jobs, for people without a shell: each with its form and its answer."""
