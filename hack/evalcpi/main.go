// Command evalcpi measures the detector: how often it finds the antagonist, how
// often it blames somebody else, on simulated machines whose truth is known, and
// what the two ways to say "normal" make of real CPIs. It prints tables and, with
// -write, puts them and a plot into docs/detection.md.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	trials := flag.Int("trials", 1000, "trials a cell")
	seed := flag.Uint64("seed", 1, "of the first trial")
	flag.Parse()
	if err := run(*trials, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "evalcpi:", err)
		os.Exit(1)
	}
}
