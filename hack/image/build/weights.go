package build

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"debug/gosym"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Weight is what a module takes of a binary: its functions, and as much of everything else (tables of lines, types,
// data) as of all functions these are.
type Weight struct {
	Module string
	Bytes  int64
}

// Weights are those of a binary's modules, the heaviest first. All packages of the standard library are one.
func Weights(path string) ([]Weight, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	modules := []string{info.Main.Path}
	for _, m := range info.Deps { // by the paths that packages have, whatever a module was replaced by
		modules = append(modules, m.Path)
	}
	slices.SortFunc(modules, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	functions, size, err := functionsOf(path)
	if err != nil {
		return nil, fmt.Errorf("functions of %s: %w", path, err)
	}
	code, all := map[string]int64{}, int64(0)
	for i := range functions {
		f := &functions[i]
		n := int64(f.End - f.Entry)
		code[moduleOf(packageOf(f.Name), modules)] += n
		all += n
	}
	if all == 0 {
		return nil, fmt.Errorf("%s has no functions", path)
	}
	var list []Weight
	for module, n := range code {
		list = append(list, Weight{module, int64(float64(n) / float64(all) * float64(size))})
	}
	slices.SortFunc(list, func(a, b Weight) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Module, b.Module))
	})
	return list, nil
}

// functionsOf reads what the Go runtime reads for its traces, which no linker leaves out.
func functionsOf(path string) ([]gosym.Func, int64, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	text, lines := f.Section(".text"), f.Section(".gopclntab")
	if text == nil || lines == nil {
		return nil, 0, errors.New("it has no table of Go's functions")
	}
	data, err := lines.Data()
	if err != nil {
		return nil, 0, err
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, 0, err
	}
	return table.Funcs, file.Size(), nil
}

// packageOf is the package of a function by its name in a binary.
func packageOf(name string) string {
	name, _, _ = strings.Cut(name, "[") // its type arguments have paths, too
	name = strings.TrimPrefix(strings.TrimPrefix(name, "type:.eq."), "type:.hash.")
	last := strings.LastIndexByte(name, '/') + 1
	pkg, _, _ := strings.Cut(name[last:], ".")
	return name[:last] + strings.ReplaceAll(pkg, "%2e", ".")
}

// moduleOf is the longest of these modules that has the package.
func moduleOf(pkg string, modules []string) string {
	for _, m := range modules {
		if pkg == m || strings.HasPrefix(pkg, m+"/") {
			return m
		}
	}
	return Library
}

// heavy is from when on a dependency has to be justified, in bytes.
const heavy = 1_000_000

// WeightsPage is the page of a repository that says what each heavy dependency of the daemon is for.
const WeightsPage = "docs/security/dependencies.md"

// head begins the page's table.
const head = "| in the binary | MB, estimated from functions by `make generate` | what for; an image is not built " +
	"without this row, from 1 MB on |\n|---|---|---|\n"

// Justify returns the page with the weights of a binary in its table. Sizes that have changed by less than a tenth
// stay, so that not every commit has others. It fails where a dependency is heavy and the page does not say what for.
func Justify(page, own string, list []Weight) (string, error) {
	before, table, there := strings.Cut(page, head)
	table, after, _ := strings.Cut(table+"\n", "\n\n")
	if !there {
		before, table, after = page, "", ""
	}
	was := rowsOf(table)
	var b strings.Builder
	var errs []error
	rest, total := int64(0), int64(0)
	row := func(name string, n int64, why string) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, steady(was[name].size, n), cmp.Or(was[name].why, why))
	}
	for _, w := range list {
		total += w.Bytes
		switch name := "`" + w.Module + "`"; {
		case w.Module == own:
			row("Quietcore", w.Bytes, "")
		case w.Module == Library:
			row(Library, w.Bytes, "")
		case w.Bytes < heavy:
			rest += w.Bytes
		default:
			row(name, w.Bytes, "")
			if was[name].why == "" {
				errs = append(errs, fmt.Errorf("%s takes %.1f MB of the binary, and %s does not say what for: do "+
					"without it, or say so there", w.Module, float64(w.Bytes)/1e6, WeightsPage))
			}
		}
	}
	row("all others", rest, "each takes less than 1 MB")
	row("together", total, "")
	return before + head + b.String() + strings.TrimSuffix("\n"+after, "\n"), errors.Join(errs...)
}

// part is a row of the table.
type part struct{ size, why string }

func rowsOf(table string) map[string]part {
	rows := map[string]part{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | "); len(cells) == 3 {
			rows[strings.TrimSpace(cells[0])] = part{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])}
		}
	}
	return rows
}

// steady is a size in MB, or the one of before if that is near.
func steady(was string, n int64) string {
	now := float64(n) / 1e6
	if before, err := strconv.ParseFloat(was, 64); err == nil && before*0.9 <= now && now <= before*1.1 {
		return was
	}
	return strconv.FormatFloat(now, 'f', 1, 64)
}
