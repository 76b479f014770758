"""``python -m benchmarks`` runs them all, one after the other."""

from benchmarks import products, reader, scale, scaling, solver

for benchmark in (products, reader, solver, scaling, scale):
    benchmark.main()
