package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

const (
	errNoDevice  = unix.ENODEV // a cgroup that was removed while its file was open
	errNoProcess = unix.ESRCH
)

const (
	// Busy is the name of the threads that are watched: they never sleep.
	Busy = "spin"
	// refreshEvery bounds how old the list of threads is.
	refreshEvery = 50 * time.Millisecond
	// rest lets the emulated machine do something else as well.
	rest = 2 * time.Millisecond
)

// window watches threads.
type window struct {
	root    string
	threads map[int]*thread
	buf     []byte
}

type thread struct {
	pod  sweep.Pod
	stat *os.File
}

// watchWindow sweeps until ctx ends. It has the highest priority: a sampler
// that waits behind what it samples sees little.
func watchWindow(ctx context.Context, root string) (sweep.Report, error) {
	runtime.GOMAXPROCS(1)
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		return sweep.Report{}, err
	}
	m, err := readMachine("/sys/devices/system/cpu")
	if err != nil {
		return sweep.Report{}, err
	}
	w := &window{root: root, threads: map[int]*thread{}, buf: make([]byte, 4096)}
	judge := sweep.New(m)
	began := time.Now()
	var refreshed time.Time
	for ctx.Err() == nil {
		if time.Since(refreshed) > refreshEvery {
			if err := w.refresh(); err != nil {
				return judge.Report(), err
			}
			refreshed = time.Now()
		}
		s, err := w.sweep(time.Since(began))
		if err != nil {
			return judge.Report(), err
		}
		judge.Add(s)
		time.Sleep(rest)
	}
	return judge.Report(), nil
}

// sweep reads owners, threads, owners.
func (w *window) sweep(at time.Duration) (sweep.Sweep, error) {
	s := sweep.Sweep{At: at}
	pods, err := findPods(w.root)
	if err != nil {
		return s, err
	}
	var alive []podCgroup
	for _, p := range pods {
		if !p.pod.Class.Exclusive() {
			continue
		}
		o, ok, err := readOwner(p)
		if err != nil {
			return s, err
		}
		if ok {
			s.Before, alive = append(s.Before, o), append(alive, p)
		}
	}
	s.Busy = w.look()
	for _, p := range alive {
		o, ok, err := readOwner(p)
		if err != nil {
			return s, err
		}
		if ok {
			s.After = append(s.After, o)
		}
	}
	return s, nil
}

func (w *window) look() []sweep.Thread {
	var busy []sweep.Thread
	for tid, t := range w.threads {
		n, err := unix.Pread(int(t.stat.Fd()), w.buf, 0)
		if err != nil || n == 0 { // it has ended
			t.stat.Close()
			delete(w.threads, tid)
			continue
		}
		if cpu, running := parseStat(w.buf[:n]); running {
			busy = append(busy, sweep.Thread{TID: tid, Pod: t.pod, CPU: cpu})
		}
	}
	return busy
}

// parseStat reads the fields "state" and "processor" of a stat file. Only of a
// thread that is ready to run the processor is where it is now.
func parseStat(line []byte) (cpu int, running bool) {
	const state, processor = 3, 39
	name := bytes.LastIndexByte(line, ')') // the second field may hold anything
	if name < 0 {
		return 0, false
	}
	fields := bytes.Fields(line[name+1:])
	if len(fields) <= processor-state || string(fields[0]) != "R" {
		return 0, false
	}
	cpu, err := strconv.Atoi(string(fields[processor-state]))
	return cpu, err == nil
}

// refresh looks for threads that are new.
func (w *window) refresh() error {
	pods, err := findPods(w.root)
	if err != nil {
		return err
	}
	for _, p := range pods {
		tids, err := threadsBelow(p.dir)
		if err != nil {
			return err
		}
		for _, tid := range tids {
			if w.threads[tid] != nil {
				continue
			}
			dir := fmt.Sprintf("/proc/%d/task/%d", tid, tid)
			if comm, err := os.ReadFile(dir + "/comm"); err != nil || strings.TrimSpace(string(comm)) != Busy {
				continue
			}
			if f, err := os.Open(dir + "/stat"); err == nil {
				w.threads[tid] = &thread{pod: p.pod, stat: f}
			}
		}
	}
	return nil
}

func readMachine(dir string) (sweep.Machine, error) {
	var m sweep.Machine
	sockets := map[string]*cpuset.Set{}
	for cpu := 0; ; cpu++ {
		topology := filepath.Join(dir, fmt.Sprintf("cpu%d", cpu), "topology")
		socket, err := os.ReadFile(filepath.Join(topology, "physical_package_id"))
		if vanished(err) && cpu > 0 {
			break
		}
		if err != nil {
			return m, err
		}
		list, err := os.ReadFile(filepath.Join(topology, "thread_siblings_list"))
		if err != nil {
			return m, err
		}
		siblings, err := cpuset.Parse(strings.TrimSpace(string(list)))
		if err != nil {
			return m, err
		}
		m.Siblings = append(m.Siblings, siblings)
		if sockets[string(socket)] == nil {
			sockets[string(socket)] = &cpuset.Set{}
		}
		sockets[string(socket)].Add(cpu)
	}
	for _, s := range sockets {
		m.Sockets = append(m.Sockets, *s)
	}
	return m, nil
}
