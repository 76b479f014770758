"""``python -m benchmarks`` runs them all, one after the other, but for those that compare with installed peers."""

from benchmarks import clustering, completion, neighbors, one_class, products, reader, scale, scaling, solver

for benchmark in (products, clustering, neighbors, reader, solver, scaling, one_class, completion, scale):
    benchmark.main()
