package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/quietcore/quietcore/e2e/machine"
)

func main() {
	var g machine.Grid
	spec := flag.String("boot", "2,2,1,2,2", "sockets,nodes,l3,cores,threads")
	flag.Parse()
	fmt.Sscanf(*spec, "%d,%d,%d,%d,%d", &g.Sockets, &g.NodesPerSocket, &g.L3PerNode, &g.CoresPerL3, &g.ThreadsPerCore)
	ctx := context.Background()
	t0 := time.Now()
	m, err := machine.Boot(ctx, machine.Options{Grid: g, Cache: ".cache/e2e", Progress: os.Stderr, Dir: "/tmp/qc-e2e-run"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer m.Close()
	step := func(what string, err error) { fmt.Printf("%6.2f %s %v\n", time.Since(t0).Seconds(), what, err) }
	step("booted", nil)
	step("containerd", m.StartContainerd(ctx))
	step("image", m.ImportImage(ctx))
	for _, a := range flag.Args() {
		r, err := m.Exec(ctx, "sh", "-c", a)
		step(a, err)
		fmt.Print(r.Stdout, r.Stderr)
	}
	if len(flag.Args()) == 0 {
		fmt.Println(m.LogTail(ctx, "containerd", 3000))
	}
}
