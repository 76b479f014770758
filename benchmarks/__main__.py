"""``python -m benchmarks`` runs all benchmarks except those that need other packages."""

from benchmarks import clustering, completion, neighbors, one_class, products, reader, scale, scaling, solver

for benchmark in (products, clustering, neighbors, reader, solver, scaling, one_class, completion, scale):
    benchmark.main()
