"""Write synthetic files in the formats of the real data sets, for rehearsals and tests.

Imports `common` and `data`. Start reading at `twins.write_twin`.
"""
