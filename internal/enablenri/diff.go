package enablenri

import (
	"fmt"
	"slices"
	"strings"
)

const around = 3 // lines of context

// Diff is the change for people, in the form of diff -u.
func (p *Plan) Diff() string {
	old, fresh := strings.Split(strings.TrimSuffix(string(p.Old), "\n"),
		"\n"), strings.Split(strings.TrimSuffix(string(p.New), "\n"), "\n")
	from := p.Path
	if p.Old == nil {
		old, from = nil, "/dev/null"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", from, p.Path)
	edits := align(old, fresh)
	for i := 0; i < len(edits); {
		if edits[i].mark == ' ' {
			i++
			continue
		}
		start := max(0, i-around)
		end := i
		for quiet := 0; end < len(edits) && quiet <= 2*around; end++ {
			if edits[end].mark == ' ' {
				quiet++
			} else {
				quiet = 0
			}
		}
		for end > i && edits[end-1].mark == ' ' && end-1 > lastChange(edits[:end])+around {
			end--
		}
		fmt.Fprintf(&b, "@@ -%d +%d @@\n", edits[start].old+1, edits[start].fresh+1)
		for _, e := range edits[start:end] {
			fmt.Fprintf(&b, "%c%s\n", e.mark, e.line)
		}
		i = end
	}
	return b.String()
}

type edit struct {
	mark       byte
	line       string
	old, fresh int
}

func lastChange(edits []edit) int {
	for i := len(edits) - 1; i >= 0; i-- {
		if edits[i].mark != ' ' {
			return i
		}
	}
	return -1
}

// align works for changes of single lines and insertions, which is all that set
// does: a line that differs is replaced, one that comes back later was inserted.
func align(old, fresh []string) []edit {
	var list []edit
	i, j := 0, 0
	for i < len(old) || j < len(fresh) {
		switch {
		case i < len(old) && j < len(fresh) && old[i] == fresh[j]:
			list = append(list, edit{' ', old[i], i, j})
			i, j = i+1, j+1
		case j < len(fresh) && (i == len(old) || slices.Contains(fresh[j:min(len(fresh), j+8)], old[i])):
			list = append(list, edit{'+', fresh[j], i, j})
			j++
		case i < len(old):
			list = append(list, edit{'-', old[i], i, j})
			i++
			if j < len(fresh) && (i == len(old) || old[i] != fresh[j]) {
				list = append(list, edit{'+', fresh[j], i, j})
				j++
			}
		}
	}
	return list
}
