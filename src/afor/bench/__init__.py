"""The benchmark: everything the paper did, on data from anyone (extra ``afor[bench]``)."""
