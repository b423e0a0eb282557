// Command prose holds the documentation to its limits: lines of 120 columns, sentences of 25 words, pages of 1,500
// words (the README 500, tutorials 600), and no words that have a better one. Together they have at most 30,000 words
// of prose, measurements included and the reference left out. It runs in the root of the repository and prints what
// it finds. Exit code 1: it found something.
//
//	go run ./hack/prose             the pages that are held
//	go run ./hack/prose -all        the others, too: what remains to be done
//	go run ./hack/prose -count      words of prose by page
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/quietcore/quietcore/internal/doctext"
)

// exempt are pages that are not prose of ours, or are generated; excused are those that were written before the limits
// and wait to be rewritten. A page that keeps the limits leaves the second list: prose fails until it does. The words
// of the reference, which is looked up and not read, are not counted.
var (
	exempt    = []string{"charts/quietcore/README.md", "docs/security/attacks.md", "docs/semantics/matrix.md"}
	excused   = []string{"docs/configuration.md", "docs/metrics.md"}
	reference = slices.Concat(exempt, excused)
)

func main() {
	all := flag.Bool("all", false, "print what is found in pages that are excused, too")
	count := flag.Bool("count", false, "print the words of prose of each page")
	flag.Parse()
	found, err := run(*all, *count)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
	}
	if err != nil || found > 0 {
		os.Exit(1)
	}
}

// run prints what is found, and says how much that is.
func run(all, count bool) (found int, err error) {
	pages, err := doctext.Pages(".")
	if err != nil {
		return 0, err
	}
	evidence, err := doctext.Evidence(".")
	if err != nil {
		return 0, err
	}
	for _, p := range pages {
		found += hold(p, all)
	}
	words := 0
	for _, p := range slices.Concat(pages, evidence) {
		if slices.Contains(reference, p.Path) {
			continue
		}
		n := p.ProseWords()
		words += n
		if count {
			fmt.Printf("%6d %s\n", n, p.Path)
		}
	}
	if count {
		fmt.Printf("%6d words of prose\n", words)
	}
	if words > doctext.MaxProseWords {
		found++
		fmt.Printf("the documentation has %d words of prose, at most %d: -count says where\n", words,
			doctext.MaxProseWords)
	}
	return found, nil
}

// hold prints what is found in a page.
func hold(p doctext.Page, all bool) int {
	if slices.Contains(exempt, p.Path) {
		return 0
	}
	list, isExcused := p.Prose(), slices.Contains(excused, p.Path)
	switch {
	case isExcused && len(list) == 0:
		fmt.Printf("%s keeps every limit: take it out of the list of excused pages in hack/prose\n", p.Path)
		return 1
	case isExcused && !all:
		return 0
	}
	for _, f := range list {
		fmt.Println(f)
	}
	return len(list)
}
