"""The one Definitions object: composes assets, sensors and resources, nothing else."""

from dagster import Definitions, in_process_executor

import assets
import resources
import sensors

defs = Definitions.merge(
    assets.definitions(),
    sensors.definitions(),
    resources.definitions(),
    # Every run has a process of its own. One more process per step would cost three seconds a step.
    Definitions(executor=in_process_executor),
)
