package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

const (
	maxFileBytes = 1 << 20
	maxDirNames  = 4 * cpuset.MaxCPUs
)

var errMissing = errors.New("is missing")

// errUnknown: the kernel has the file and no number for it.
var errUnknown = errors.New("unknown")

// text reads one file and trims the value. It does not open a pipe or device in a
// copied tree, which could block forever.
func (r *reader) text(name string) (string, error) {
	info, err := fs.Stat(r.fsys, name)
	if err != nil {
		return "", plain(err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("is not a regular file")
	}
	f, err := r.fsys.Open(name)
	if err != nil {
		return "", plain(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return "", plain(err)
	}
	if len(data) > maxFileBytes {
		return "", fmt.Errorf("is larger than %d bytes", maxFileBytes)
	}
	return strings.Trim(string(data), " \t\r\n\x00"), nil
}

// names lists a directory, up to a bound that no real one reaches.
func (r *reader) names(dir string) ([]string, error) {
	f, err := r.fsys.Open(dir)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("is not a directory")
	}
	entries, err := d.ReadDir(maxDirNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, plain(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// plain removes the path from an error, since the warning has it already.
func plain(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errMissing
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func (r *reader) list(name string) (cpuset.Set, error) {
	text, err := r.text(name)
	if err != nil {
		return cpuset.Set{}, err
	}
	return parseList(text)
}

func (r *reader) mask(name string) (cpuset.Set, error) {
	text, err := r.text(name)
	if err != nil {
		return cpuset.Set{}, err
	}
	return parseMask(text)
}

func (r *reader) number(name string) (int, error) {
	text, err := r.text(name)
	if err != nil {
		return 0, err
	}
	return parseNumber(text)
}

// parseList parses a list of CPUs or nodes, "0-3,8". Kernels without the configuration
// behind a file print "(null)" for an empty list.
func parseList(text string) (cpuset.Set, error) {
	if text == "(null)" {
		return cpuset.Set{}, nil
	}
	return cpuset.Parse(text)
}

// parseMask parses groups of 32 bits in hexadecimal, the highest first:
// "0000000f,00000000".
func parseMask(text string) (cpuset.Set, error) {
	var s cpuset.Set
	if len(text) > cpuset.MaxCPUs {
		return s, fmt.Errorf("CPU mask of %d bytes is longer than any machine's", len(text))
	}
	groups := strings.Split(text, ",")
	for i, group := range groups {
		bits, err := strconv.ParseUint(group, 16, 32)
		if err != nil {
			return cpuset.Set{}, fmt.Errorf("CPU mask %s: %s is not 32 bits in hexadecimal", quote(text), quote(group))
		}
		first := (len(groups) - 1 - i) * 32
		for b := 0; bits != 0; b, bits = b+1, bits>>1 {
			if bits&1 == 0 {
				continue
			}
			if first+b >= cpuset.MaxCPUs {
				return cpuset.Set{}, fmt.Errorf("CPU mask %s: CPU numbers end at %d", quote(text), cpuset.MaxCPUs-1)
			}
			s.Add(first + b)
		}
	}
	return s, nil
}

// parseNumber parses an identifying number. The kernel writes -1 if it is unknown.
func parseNumber(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is not a number", quote(text))
	case n < 0:
		return 0, fmt.Errorf("is %d, which means %w", n, errUnknown)
	}
	return int(n), nil
}

// parseDistances parses the row of one node: "10 21".
func parseDistances(text string) ([]int, error) {
	fields := strings.Fields(text)
	row := make([]int, len(fields))
	for i, f := range fields {
		n, err := parseNumber(f)
		if err != nil {
			return nil, err
		}
		// The ACPI table that this comes from holds single bytes; 0 is no distance.
		if n < 1 || n > 255 {
			return nil, fmt.Errorf("distance %d is not between 1 and 255", n)
		}
		row[i] = n
	}
	return row, nil
}

// parseMemTotal finds "Node 0 MemTotal: 8386704 kB" and returns bytes.
func parseMemTotal(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseUint(fields[3], 10, 53)
		if err != nil {
			return 0, fmt.Errorf("MemTotal %s is not a number of kB", quote(fields[3]))
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("has no line MemTotal")
}

func (r *reader) exists(name string) bool {
	_, err := fs.Stat(r.fsys, name)
	return err == nil
}
