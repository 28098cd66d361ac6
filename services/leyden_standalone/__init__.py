"""All of Leyden on one machine: `leyden up` and `leyden demo`."""
