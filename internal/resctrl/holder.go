package resctrl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options are what a Holder is made of. Folder and Threads are required.
type Options struct {
	Folder Folder
	// Threads lists the threads in a cgroup and below, as this process sees them: 0 for one that it does not see.
	Threads func(cgroup string) ([]int, error)
	Clock   Clock
	Log     *slog.Logger // nil: nothing is logged
}

// Clock is a Holder's source of time. Nil fields use the system's.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Holder holds containers back, each until its deadline. It is safe for concurrent use.
type Holder struct {
	o     Options
	woken chan struct{}

	mu     sync.Mutex // guards what follows
	held   map[string]hold
	others map[string]bool // containers that have a class or are monitored, by ID
	made   bool            // there may be a group of ours
	ended  bool
	why    string // it can do nothing; empty: it can
}

// hold is a container that is held back.
type hold struct {
	cgroup string
	until  time.Time
}

const (
	followEvery = 5 * time.Second // new threads of who is held, that no held thread has made
	mostRounds  = 8               // of taking what comes while others are taken
	mostOthers  = 4096            // containers that are remembered
)

var (
	errOthers = errors.New("the container has a class of its own (resctrl), or is monitored")
	errHidden = errors.New("the daemon does not see the host's processes, and its pod needs hostPID: true")
	errEnded  = errors.New("resctrl: ended")
)

// Open makes a Holder, and undoes what one before it has left.
func Open(o Options) *Holder {
	if o.Clock.Now == nil {
		o.Clock.Now = time.Now
	}
	if o.Clock.After == nil {
		o.Clock.After = time.After
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Holder{o: o, woken: make(chan struct{}, 1), held: map[string]hold{}, others: map[string]bool{}}
	err := Check(o.Folder)
	if err == nil {
		err = Clear(o.Folder)
	}
	if err != nil {
		h.why = err.Error()
	}
	return h
}

// Check says why memory bandwidth cannot be limited, as far as reading tells.
func Check(f Folder) error {
	_, err := least(f)
	return err
}

// Clear removes our group, whoever made it: its threads return to the default group.
func Clear(f Folder) error {
	// Where nothing may be written it is asked first.
	if _, err := f.List(Group); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := f.Remove(Group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("resctrl: %w", err)
	}
	return nil
}

// Why says why nothing can be held back; empty: it can.
func (h *Holder) Why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// Offers says that a container can be held back, as far as that is known.
func (h *Holder) Offers(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why == "" && !h.others[id]
}

// Hold holds a container back for a time, from now on. An error leaves it alone.
func (h *Holder) Hold(id, cgroup string, d time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return errEnded
	case h.why != "":
		return errors.New(h.why)
	}
	err := h.take(cgroup)
	if err == nil {
		h.held[id] = hold{cgroup: cgroup, until: h.o.Clock.Now().Add(d)}
		select {
		case h.woken <- struct{}{}:
		default:
		}
		return nil
	}
	h.judge(id, err)
	delete(h.held, id)
	return errors.Join(err, h.free(cgroup))
}

// judge remembers what an error says of times to come.
func (h *Holder) judge(id string, err error) {
	switch {
	case errors.Is(err, errOthers):
		if len(h.others) >= mostOthers {
			clear(h.others)
		}
		h.others[id] = true
	case errors.Is(err, errHidden), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		h.why = err.Error()
	}
}

// Release lets a container go.
func (h *Holder) Release(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.release(id)
}

func (h *Holder) release(id string) error {
	one, is := h.held[id]
	if !is {
		return nil
	}
	delete(h.held, id)
	return h.free(one.cgroup)
}

// Run keeps deadlines, and holds what is new in containers that are held, until ctx ends. Then all are let go.
func (h *Holder) Run(ctx context.Context) {
	defer h.end()
	var due <-chan time.Time
	for {
		if due == nil && h.busy() {
			due = h.o.Clock.After(followEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-h.woken:
		case <-due:
			due = nil
			h.follow()
		}
	}
}

// busy says that there is something to follow, or to undo.
func (h *Holder) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.made
}

func (h *Holder) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	clear(h.held)
	h.report(h.free(""))
}

func (h *Holder) report(err error) {
	if err != nil {
		h.o.Log.Warn("containers stay held back from memory until this is done", "err", err)
	}
}

// follow does what is due.
func (h *Holder) follow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Clock.Now()
	for id, one := range h.held {
		if !now.Before(one.until) {
			h.report(h.release(id))
			continue
		}
		if err := h.take(one.cgroup); err != nil {
			h.o.Log.Warn("a container is held back from memory no longer", "container", id, "err", err)
			h.judge(id, err)
			h.report(h.release(id))
		}
	}
	if len(h.held) == 0 {
		h.report(h.free("")) // it may have failed before
	}
}

// look at the threads of a cgroup, and then at those that are in our group.
func (h *Holder) look(cgroup string) (threads []int, ours map[int]bool, err error) {
	if threads, err = h.threads(cgroup); err != nil {
		return nil, nil, err
	}
	ours, err = h.tasks(Group)
	return threads, ours, err
}

// take the threads of a cgroup into our group.
func (h *Holder) take(cgroup string) error {
	if err := h.make(); err != nil {
		return err
	}
	for range mostRounds {
		threads, ours, err := h.look(cgroup)
		if err != nil {
			return err
		}
		// Read after the threads: who is in no other group by then was in the default one.
		if others, err := h.inOthers(); err != nil {
			return err
		} else if meets(threads, others) {
			return errOthers
		}
		fresh := false
		for _, id := range threads {
			if ours[id] {
				continue
			}
			fresh = true
			if err := h.move(id, Group); err != nil {
				return err
			}
		}
		if !fresh {
			return nil
		}
	}
	return nil // what is left is taken when it is followed
}

func meets(threads []int, set map[int]bool) bool {
	for _, id := range threads {
		if set[id] {
			return true
		}
	}
	return false
}

// make our group, unless it is there.
func (h *Holder) make() error {
	err := h.o.Folder.Make(Group)
	if errors.Is(err, fs.ErrExist) {
		if h.made {
			return nil
		}
		err = nil // it has who knows what for schemata
	}
	if err != nil {
		return h.said(err)
	}
	h.made = true
	wanted, err := least(h.o.Folder)
	if err == nil {
		err = h.said(h.o.Folder.Write(path.Join(Group, "schemata"), wanted))
	}
	if err != nil {
		return errors.Join(err, h.remove())
	}
	return nil
}

// said adds what the kernel says of an error; nil stays nil.
func (h *Holder) said(err error) error {
	if err == nil {
		return nil
	}
	status, _ := h.o.Folder.Read("info/last_cmd_status")
	if status = strings.TrimSpace(status); status == "" || status == "ok" {
		return fmt.Errorf("resctrl: %w", err)
	}
	return fmt.Errorf("resctrl: %w: %s", err, status)
}

// free the threads of a cgroup that are in our group; the group goes with the last container.
func (h *Holder) free(cgroup string) error {
	if !h.made {
		return nil
	}
	if len(h.held) == 0 {
		return h.remove()
	}
	for range mostRounds {
		threads, ours, err := h.look(cgroup)
		if err != nil {
			return err
		}
		if !meets(threads, ours) {
			return nil
		}
		for _, id := range threads {
			if ours[id] {
				if err := h.move(id, "."); err != nil {
					return err
				}
			}
		}
	}
	return fmt.Errorf("resctrl: %s makes threads faster than they are let go", cgroup)
}

func (h *Holder) remove() error {
	err := Clear(h.o.Folder)
	h.made = err != nil
	return err
}

// threads of a cgroup. To move a thread 0 would move the one that asks.
func (h *Holder) threads(cgroup string) ([]int, error) {
	list, err := h.o.Threads(cgroup)
	if err != nil {
		return nil, err
	}
	for _, id := range list {
		if id <= 0 {
			return nil, errHidden
		}
	}
	return list, nil
}

// move a thread to a group. One that has ended needs nothing.
func (h *Holder) move(id int, group string) error {
	err := h.o.Folder.Write(path.Join(group, "tasks"), strconv.Itoa(id)+"\n")
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return h.said(err)
}

// tasks are the threads in a group; of one that is gone, none.
func (h *Holder) tasks(group string) (map[int]bool, error) {
	text, err := h.o.Folder.Read(path.Join(group, "tasks"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resctrl: %w", err)
	}
	list, err := ids(text)
	set := make(map[int]bool, len(list))
	for _, id := range list {
		set[id] = true
	}
	return set, err
}

// inOthers are the threads in groups that are not ours, and in the default group's monitoring groups: these would not
// be there again when they are let go.
func (h *Holder) inOthers() (map[int]bool, error) {
	all := map[int]bool{}
	for _, folder := range [...]string{".", "mon_groups"} {
		names, err := h.o.Folder.List(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("resctrl: %w", err)
		}
		for _, name := range names {
			// Folders that are no groups have no tasks.
			if group := path.Join(folder, name); group != Group {
				set, err := h.tasks(group)
				if err != nil {
					return nil, err
				}
				for id := range set {
					all[id] = true
				}
			}
		}
	}
	return all, nil
}
