"""Spark session of a run, as Dagster's own lazy resource, without the warnings of every start."""

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from retention_assets.pipeline.spark import is_running, session_of

STARTING = "Starting Spark …"


class QuietSparkResource(LazyPySparkResource):
    """In the place of Dagster's own: the same session, by the same configuration."""

    # a cluster was checked for what a run needs of it
    _is_checked: bool = PrivateAttr(default=False)

    @property
    def is_checked(self) -> bool:
        """Whether the cluster was looked at; once in a run is enough."""
        return self._is_checked

    def note_checked(self) -> None:
        """It was."""
        self._is_checked = True

    @property
    def is_started(self) -> bool:
        """Whether asking for the session starts nothing any more."""
        return self._spark_session is not None or is_running()

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session_of(self.spark_config)
