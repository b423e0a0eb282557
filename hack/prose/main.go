// Command prose holds the documentation to its limits: lines of 120 columns, sentences of 25 words, pages of 1,500
// words, and no words that have a better one. It runs in the root of the repository and prints what it finds. Exit
// code 1: it found something.
//
//	go run ./hack/prose             the pages that are held
//	go run ./hack/prose -all        the others, too: what remains to be done
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/doctext"
)

// exempt are pages that are not prose of ours, or are generated; excused are those that were written before the limits
// and wait to be rewritten. A page that keeps the limits leaves the second list: prose fails until it does.
var (
	exempt  = []string{"charts/quietcore/README.md", "docs/semantics/matrix.md"}
	excused = []string{"docs/configuration.md", "docs/metrics.md"}
)

func main() {
	all := flag.Bool("all", false, "print what is found in pages that are excused, too")
	flag.Parse()
	pages, err := doctext.Pages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	words, found := 0, 0
	for _, p := range pages {
		if slices.Contains(exempt, p.Path) {
			continue
		}
		words += len(strings.Fields(p.Text))
		list := p.Prose()
		isExcused := slices.Contains(excused, p.Path)
		if isExcused && len(list) == 0 {
			found++
			fmt.Printf("%s keeps every limit: take it out of the list of excused pages in hack/prose\n", p.Path)
		}
		if isExcused && !*all {
			continue
		}
		for _, f := range list {
			fmt.Println(f)
		}
		found += len(list)
	}
	if *all {
		fmt.Printf("%d words in %d pages\n", words, len(pages)-len(exempt))
	}
	if found > 0 {
		os.Exit(1)
	}
}
