"""Temporary: variants of kernels and solvers at the Wikipedia shape, printed as JSON lines."""

from __future__ import annotations

import json
import sys
import time
import traceback

import numpy as np
import torch

import labelgap.kernels.gpu as gpu
from benchmarks.gpu import bind_timed, count_bytes, measure_ceilings, seconds_of, trace
from benchmarks.shapes import make_shape
from labelgap import LEML, OneClassMF, SLEEC
from labelgap.kernels import get_backend, gpu_loops
from labelgap.runtime import threads
from labelgap.solvers import Fit, NewtonCG, alternate
from labelgap.solvers.rounds import Rounds

BEGIN = time.perf_counter()


def say(**fields):
    print(json.dumps({"t": round(time.perf_counter() - BEGIN, 1), **fields}, default=str), flush=True)


def micro():
    for k in (256, 500):
        A = torch.randn(k + 50, k, device="cuda", dtype=torch.float64)
        G = A.T @ A
        host = G.cpu().numpy()
        say(
            k=k,
            eigh=seconds_of(lambda: torch.linalg.eigh(G)),
            cholesky=seconds_of(lambda: torch.linalg.cholesky_ex(G)),
            inv=seconds_of(lambda: torch.linalg.inv(G)),
            triangular=seconds_of(
                lambda: torch.linalg.solve_triangular(
                    G, torch.eye(k, device="cuda", dtype=torch.float64), upper=False
                )
            ),
        )
        begin = time.perf_counter()
        np.linalg.eigh(host)
        say(k=k, host_eigh=time.perf_counter() - begin)
    from labelgap.kernels import column_grams, combine, exact_gram, mix

    B, C = (torch.randn(881_805, 500, device="cuda") for _ in range(2))
    T = torch.randn(500, 500, device="cuda")
    a = torch.randn(1, 500, device="cuda", dtype=torch.float64)
    half = C.bfloat16()
    say(
        gram64=seconds_of(lambda: exact_gram(B)),
        mix32=seconds_of(lambda: mix(B, T)),
        mix16=seconds_of(lambda: mix(half, T)),
        grams=seconds_of(lambda: column_grams(B, C)),
        grams16=seconds_of(lambda: column_grams(B, half)),
        combine=seconds_of(lambda: combine(B, a, C, a)),
        coarse=seconds_of(lambda: get_backend("cuda").coarse(B)),
    )


def launch_variant(A, B, block, unroll, warps, stages=None):
    k = B.shape[1]
    out = torch.empty((A.shape[0], k), device="cuda")
    pieces = A.pieces
    partial = torch.empty((max(1, pieces.n_slots), k), device="cuda")
    width = min(B.stride(0), gpu._round_up(k)) if B.dtype == torch.bfloat16 else k
    constants = {"K": k, "READ": width, "BLOCK": block, "SUM": gpu_loops.tl.float32, "UNROLL": unroll}
    grid = (pieces.table.shape[0], -(-k // block))
    gpu_loops.multiply[grid](
        pieces.table, A.indices, A.data, B, out, partial, B.stride(0), k, **constants, num_warps=warps
    )
    return gpu._finish(pieces, partial, out)


def head_split(A, count):
    """The ``count`` most frequent columns dense, and the rest."""
    counts = torch.bincount(A.indices, minlength=A.shape[1])
    chosen = torch.sort(torch.topk(counts, count).indices).values
    place = torch.full((A.shape[1],), -1, dtype=torch.int64, device="cuda")
    place[chosen] = torch.arange(count, device="cuda")
    inside = place[A.indices] >= 0
    rows = A.row_indices
    dense = torch.zeros((A.shape[0], count), device="cuda")
    dense[rows[inside].long(), place[A.indices[inside]]] = A.data[inside]
    rest = ~inside
    bounds = torch.zeros(A.shape[0] + 1, dtype=torch.int64, device="cuda")
    bounds[1:] = torch.cumsum(torch.bincount(rows[rest], minlength=A.shape[0]), 0)
    return chosen, dense, gpu.TorchCSR(bounds, A.indices[rest], A.data[rest], A.shape), float(inside.double().mean())


def products(X, ceiling):
    backend = get_backend("cuda")
    A = backend.prepare(X, "float32")
    k = 500
    for label, matrix in (("XW", A), ("XtB", A.T)):
        B = torch.randn((matrix.shape[1], k), device="cuda")
        exact = backend.spmm(matrix, B)
        for kind, argument in (("f32", B), ("b16", backend.coarse(B))):
            moved = count_bytes(matrix, k, argument.element_size())
            for block, unroll, warps in (
                (512, 4, 1),
                (512, 8, 1),
                (512, 2, 1),
                (256, 4, 1),
                (256, 8, 1),
                (128, 4, 1),
                (128, 8, 1),
                (128, 16, 1),
                (64, 8, 1),
                (64, 16, 1),
                (512, 4, 2),
                (512, 4, 4),
                (256, 8, 2),
            ):
                if label == "XtB" and (block, unroll, warps) not in (
                    (512, 4, 1),
                    (512, 8, 1),
                    (256, 8, 1),
                    (128, 8, 1),
                ):
                    continue
                try:
                    elapsed = seconds_of(lambda: launch_variant(matrix, argument, block, unroll, warps), 3)
                    error = float(
                        torch.linalg.norm(launch_variant(matrix, argument, block, unroll, warps) - exact)
                        / torch.linalg.norm(exact)
                    )
                    say(
                        product=label,
                        kind=kind,
                        block=block,
                        unroll=unroll,
                        warps=warps,
                        ms=1e3 * elapsed,
                        share=moved / elapsed / ceiling,
                        error=error,
                    )
                except Exception as failure:
                    say(product=label, kind=kind, block=block, failure=repr(failure)[:200])
    del exact
    torch.cuda.empty_cache()
    for count in (128, 512, 1024):
        chosen, dense, rest, share = head_split(A, count)
        W, B = torch.randn((A.shape[1], k), device="cuda"), torch.randn((A.shape[0], k), device="cuda")
        Wc, Bc, low = backend.coarse(W), backend.coarse(B), dense.bfloat16()
        tail = rest.T

        def run_f32():
            return launch_variant(rest, W, 512, 4, 1).addmm_(dense, W[chosen])

        def run_b16():
            return launch_variant(rest, Wc, 512, 4, 1).add_(low @ Wc[chosen])

        def run_t32():
            out = launch_variant(tail, B, 512, 4, 1)
            out[chosen] += dense.T @ B
            return out

        def run_t16():
            out = launch_variant(tail, Bc, 512, 4, 1)
            out[chosen] += (low.T @ Bc).float()
            return out

        exact = backend.spmm(A, W)
        say(
            head=count,
            share=share,
            XW_f32=1e3 * seconds_of(run_f32, 3),
            XW_b16=1e3 * seconds_of(run_b16, 3),
            XtB_f32=1e3 * seconds_of(run_t32, 3),
            XtB_b16=1e3 * seconds_of(run_t16, 3),
            gemm32=1e3 * seconds_of(lambda: dense @ W[chosen], 3),
            gemm16=1e3 * seconds_of(lambda: low @ Wc[chosen], 3),
            error=float(torch.linalg.norm(run_f32() - exact) / torch.linalg.norm(exact)),
            error16=float(torch.linalg.norm(run_b16() - exact) / torch.linalg.norm(exact)),
        )
        del chosen, dense, rest, tail, low, W, B, Wc, Bc, exact
        torch.cuda.empty_cache()


def profile(work, rows=28):
    from torch.profiler import ProfilerActivity, profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - begin
    say(profiled=elapsed)
    averages = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)[:rows]
    for each in averages:
        say(op=each.key[:70], ms=round(each.self_device_time_total / 1e3, 1), calls=each.count)
    hosts = sorted(seen.key_averages(), key=lambda e: -e.self_cpu_time_total)[:8]
    for each in hosts:
        say(host=each.key[:70], ms=round(each.self_cpu_time_total / 1e3, 1), calls=each.count)


def leml(X, Y):
    problem, fit = bind_timed(LEML(500, device="cuda"), X, Y)
    solver = problem.make_solver("auto")
    trace(problem, fit, solver, 1)
    for rounds in (4, 3):
        run = trace(problem, fit, Rounds(solver.solver, rounds), 5).without_factors()
        say(leml=rounds, seconds=run.seconds, F=run.fit.history, gib=run.peak)
    own = Fit(fit.W.clone(), fit.H.clone())
    alternate(problem, own, solver, solver, max_iter=1, tol=0)
    profile(lambda: alternate(problem, own, solver, solver, max_iter=2, tol=0))


def one_class(X, Y, limits):
    model = OneClassMF(500, loss="logistic", device="cuda")
    problem, fit = bind_timed(model, X, Y)
    variants = {
        "cg 1 20": (NewtonCG(max_iter=1, cg_iter=20), NewtonCG(max_iter=1, cg_iter=20)),
        "cg 1 40": (NewtonCG(max_iter=1, cg_iter=40), NewtonCG(max_iter=1, cg_iter=20)),
        "cg": (NewtonCG(), NewtonCG()),
    }
    trace(problem, fit, NewtonCG(max_iter=1, cg_iter=1), 1)
    for (name, (left, right)), limit in zip(variants.items(), limits):
        try:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            seconds, begin = [], time.perf_counter()

            def report(own):
                torch.cuda.synchronize()
                seconds.append(round(time.perf_counter() - begin, 2))
                return seconds[-1] > limit

            own = Fit(fit.W.clone(), fit.H.clone())
            alternate(problem, own, left, right, max_iter=500, tol=0, stop=report)
            say(
                one_class=name,
                F=[f"{F:.7g}" for F in own.history],
                seconds=seconds,
                status=own.status,
                gib=torch.cuda.max_memory_allocated() / 2**30,
            )
            if name == "cg 1 20":
                own.history.clear()
                profile(lambda: alternate(problem, own, left, right, max_iter=1, tol=0))
            del own
        except Exception:
            traceback.print_exc()
        torch.cuda.empty_cache()


def ml20m():
    _, Y = make_shape("ml-20m")
    problem, fit = bind_timed(OneClassMF(256, loss="squared", device="cuda"), None, Y)
    solver = problem.make_solver("auto")
    trace(problem, fit, solver, 2)
    run = trace(problem, fit, solver, 15)
    say(ml20m=np.diff([0, *run.seconds]).round(4).tolist(), F=[f"{F:.7g}" for F in run.fit.history], gib=run.peak)
    own = Fit(fit.W.clone(), fit.H.clone())
    alternate(problem, own, solver, solver, max_iter=3, tol=0)
    profile(lambda: alternate(problem, own, solver, solver, max_iter=5, tol=0))


def sleec():
    X, Y = make_shape("eurlex")
    begin = time.perf_counter()
    model = SLEEC(100, n_learners=2, device="cuda", random_state=0, verbose=0).fit(X, Y)
    fitted = time.perf_counter()
    model.predict_topk(X[:4000], 5)
    say(
        sleec_fit=fitted - begin,
        predict_4000=time.perf_counter() - fitted,
        objectives=[o[-1] for row in [model.objective_] for o in row],
    )


def main():
    chosen = sys.argv[1:] or ["micro", "products", "leml", "one-class", "ml-20m", "sleec"]
    rate, _ = measure_ceilings()
    say(copy=rate / 1e12)
    torch.cuda.empty_cache()
    X, Y = make_shape("wikipedia")
    torch.cuda.empty_cache()
    say(generated=X.shape)
    parts = {
        "micro": micro,
        "leml": lambda: leml(X, Y),
        "one-class": lambda: one_class(X, Y, (60, 25, 25)),
        "ml-20m": ml20m,
        "products": lambda: products(X, rate),
        "sleec": sleec,
    }
    with threads(None):
        for name, part in parts.items():
            if name in chosen:
                say(part=name)
                try:
                    part()
                except Exception:
                    traceback.print_exc()
                torch.cuda.empty_cache()
    say(done=True)


if __name__ == "__main__":
    main()
