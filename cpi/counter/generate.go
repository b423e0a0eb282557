package counter

// Needs clang 14, llvm-strip and libbpf's headers: Debian 12's packages clang,
// llvm and libbpf-dev. The output is committed, so that building needs none of it.
//
//go:generate -command bpf go tool bpf2go -target amd64,arm64 -cflags "-O2 -g -mcpu=v3 -Wall -Werror"
//go:generate bpf -no-global-types -type cpu -type machine -type pair program bpf/counter.bpf.c

// What the benchmarks compare with.
//
//go:generate bpf -output-suffix _test empty bpf/empty.bpf.c
