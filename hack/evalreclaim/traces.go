package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	period = 300 // seconds between samples
	day    = 24 * 3600 / period
)

// series is one VM or one machine.
type series struct {
	name string
	size float64   // CPUs
	use  []float64 // CPUs, one value a period
}

// host is what runs together.
type host struct {
	name string
	vms  []series
}

func (h host) limit() float64 {
	sum := 0.0
	for _, v := range h.vms {
		sum += v.size
	}
	return sum
}

// total is the host's use.
func (h host) total() []float64 {
	sum := make([]float64, len(h.vms[0].use))
	for _, v := range h.vms {
		for i, u := range v.use {
			sum[i] += u
		}
	}
	return sum
}

// set is one trace.
type set struct {
	name  string
	what  string
	hosts []host
	// pods says that the hosts' VMs are known, not only their sums.
	pods bool
}

// load reads what the folder has.
func load(folder string) ([]set, error) {
	var sets []set
	for _, trace := range []struct {
		file string
		read func(rows [][]string) (set, error)
	}{
		{"bitbrains_faststorage_sample.csv.gz", bitbrains},
		{"google2011_node_1_20vms.csv.gz", google},
		{"alibaba2018_machine_usage_sample.csv.gz", alibaba},
	} {
		rows, err := table(filepath.Join(folder, trace.file))
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "evalreclaim: left out: %v\n", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := trace.read(rows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", trace.file, err)
		}
		sets = append(sets, s)
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("no trace in %s; give the folder with -traces", folder)
	}
	return sets, nil
}

func table(name string) ([][]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := csv.NewReader(z)
	c.FieldsPerRecord = -1
	rows, err := c.ReadAll()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// bins collects samples that are not exactly a period apart.
type bins struct {
	size  float64
	sum   map[int]float64
	count map[int]int
	twice bool // several rows of one time: several VMs under one number
	last  float64
}

func (b *bins) add(seconds, use float64) {
	if b.sum == nil {
		b.sum, b.count, b.last = map[int]float64{}, map[int]int{}, math.Inf(-1)
	}
	b.twice = b.twice || seconds == b.last
	b.last = seconds
	i := int(math.Round(seconds / period))
	b.sum[i] += use
	b.count[i]++
}

// series fills holes with the value before.
func (b *bins) series(name string, from, to int) series {
	s := series{name: name, size: b.size, use: make([]float64, 0, to-from)}
	last := 0.0
	for i := from; i < to; i++ {
		if n := b.count[i]; n > 0 {
			last = b.sum[i] / float64(n)
		}
		s.use = append(s.use, last)
	}
	return s
}

// bitbrains are 30 days of VMs. Numbers under which several VMs were recorded at
// once are left out.
func bitbrains(rows [][]string) (set, error) {
	vms := map[string]*bins{}
	var order []string
	for _, row := range rows[1:] {
		v, err := numbers(row[1:5])
		if err != nil {
			return set{}, err
		}
		b := vms[row[0]]
		if b == nil {
			b = &bins{}
			vms[row[0]] = b
			order = append(order, row[0])
		}
		use := 0.0
		if v[2] > 0 {
			use = v[3] / v[2] * v[1]
		}
		b.add(v[0], use)
		b.size = max(b.size, v[1])
	}
	h := host{name: "13 VMs"}
	for _, id := range order {
		if !vms[id].twice {
			h.vms = append(h.vms, vms[id].series("vm"+id, 0, 30*day))
		}
	}
	h.name = fmt.Sprintf("%d VMs", len(h.vms))
	return set{name: "Bitbrains", what: fmt.Sprintf("Bitbrains fastStorage, %d VMs with %.0f cores, 30 days",
		len(h.vms), h.limit()), hosts: []host{h}, pods: true}, nil
}

// google is one node of the cluster data of 2011; sizes are not known, so that
// every VM counts as one CPU.
func google(rows [][]string) (set, error) {
	h := host{name: "node 1"}
	for k := range rows[0][1:] {
		s := series{name: rows[0][k+1], size: 1}
		for _, row := range rows[1:] {
			v, err := numbers(row[k+1 : k+2])
			if err != nil {
				return set{}, err
			}
			s.use = append(s.use, v[0]/100)
		}
		h.vms = append(h.vms, s)
	}
	return set{name: "Google 2011", what: fmt.Sprintf("Google cluster data 2011, one node with %d VMs, %d days",
		len(h.vms), len(h.vms[0].use)/day), hosts: []host{h}, pods: true}, nil
}

// machineCPUs are those of a machine of Alibaba's trace.
const machineCPUs = 96

// alibaba are machines of which only the sum is known.
func alibaba(rows [][]string) (set, error) {
	machines := map[string]*bins{}
	var order []string
	from, to := math.MaxInt, 0
	for _, row := range rows {
		v, err := numbers(row[1:3])
		if err != nil {
			return set{}, err
		}
		b := machines[row[0]]
		if b == nil {
			b = &bins{size: machineCPUs}
			machines[row[0]] = b
			order = append(order, row[0])
		}
		b.add(v[0], min(v[1], 100)/100*machineCPUs)
		from, to = min(from, int(v[0])/period+1), max(to, int(v[0])/period)
	}
	slices.Sort(order)
	s := set{name: "Alibaba 2018", what: fmt.Sprintf("Alibaba cluster trace 2018, %d machines, %d days", len(order),
		(to-from)/day)}
	for _, id := range order {
		s.hosts = append(s.hosts, host{name: id, vms: []series{machines[id].series(id, from, to)}})
	}
	return s, nil
}

func numbers(fields []string) ([]float64, error) {
	var list []float64
	for _, f := range fields {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", f)
		}
		list = append(list, v)
	}
	return list, nil
}
