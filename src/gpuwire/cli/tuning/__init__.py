"""The measured search behind `gpuwire tune`.

`candidates` says what can be tried, `halving` and `search` which setting to measure next and what
follows from the measurements: both are pure and know no clock. `measuring` runs the `workloads`.
`state` keeps a search on disk, `writing` puts its outcome into a configuration file, and `tables`,
`heat_maps` and `report` show it.
"""
