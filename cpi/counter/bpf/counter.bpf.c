// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Charges what a CPU's counters have moved to the cgroup that leaves the CPU.
//
// Everything a CPU writes is its own: its state in `cpus`, its rows in `sums`.
// The rows are there twice. flush() makes the CPU change over to the other ones,
// so that userspace reads, and empties, rows that nobody writes any more, and
// all of a CPU's numbers are of the same moment.
//
// Cycles and instructions are one group, and have their counters at the same times.
// Each other event may wait for its turn, or be lost, alone.
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

#define EVENTS 4
#define CACHED 64
#define DEPTH 32
#define UNKNOWN 0xffffffff
// A hypervisor may stop a CPU between the scheduler's reading of its clock and the
// one here, for seconds where the host is full: what is too much in one interval was
// missing in the one before. Beyond this it is no clock.
#define MAX_SKEW (1ull << 34)
// A task that runs on is charged after this time.
#define MAX_INTERVAL 100000000ull

enum { OTHER = 0 }; // the slot of everything that is not followed

// Modes of flush().
enum { READ = 0, START = 1, STOP = 2, CHARGE = 3 };

enum fault { FAULT_READ, FAULT_LOST, FAULT_RESET, FAULT_ABSURD, FAULT_MISSED, FAULT_DEPTH, FAULT_WAITS, FAULTS };

enum event { CYCLES, INSTRUCTIONS, REF_CYCLES, MISSES };

// Shares of an interval are in parts of this.
#define WHOLE 1024

// In the order of Counts in types.go.
struct counts {
	__u64 events[EVENTS];
	__u64 on_cpu;
	__u64 counted; // the part of on_cpu in which cycles and instructions had their counters
	__u64 counted_ref;
	__u64 counted_misses;
	__u64 wait;
	__u64 switches;
};

struct machine {
	struct counts counts;
	__u64 enabled[EVENTS];
	__u64 running[EVENTS];
	__u64 unseen; // nanoseconds of intervals in which a switch was missed
	__u64 faults[FAULTS];
	__u32 broken; // events that gave an error or stood still
	__s32 error[EVENTS]; // the last one; 0: it stood still
};

struct cached {
	__u64 id;
	__u32 generation;
	__u32 slot;
};

struct cpu {
	__u64 time; // of the last reading, CLOCK_MONOTONIC; 0: the next one is a baseline only
	__u64 read; // when that reading was done: a hypervisor may take a while in between
	// What runs was last charged at `started` of its run queue's task clock, 0
	// if that is not known; `offset` is the time the clock had left out by then.
	__u64 started;
	__u64 offset;
	__u64 owed; // nanoseconds charged to groups beyond the time there was
	__u32 on;
	__u32 bank;  // which of the two sets of rows this CPU adds to
	__u32 valid; // events that have a baseline
	__u32 running; // pid of the task that came last
	__u32 busy; // flush() is on the way
	__u64 trigger;         // cgroup switches until the last reading
	__u64 trigger_enabled; // how long they had been counted then
	__u64 queue_start;     // the run queue's clock when the window began
	__u64 runs;
	__u64 sampled;
	__u64 cost; // of the sampled runs, in nanoseconds
	__u64 read_cost[EVENTS]; // how long the last baseline's reading of each took
	struct bpf_perf_event_value base[EVENTS];
	struct machine machine[2];
	struct cached cache[CACHED];
};

// Decided when the program is loaded; the verifier removes what does not apply.
const volatile __u32 perf_events = 0;    // bit e: event e is a perf event
const volatile __u32 time_events = 0;    // bit e: event e stands for nanoseconds
const volatile __u32 slots_per_bank = 1; // rows a CPU and bank
const volatile bool v1 = false;
const volatile bool by_cgroup_switches = false;
const volatile bool by_cause = false;

// Raised by userspace after each change of `slots`: what is cached is void.
volatile __u32 generation = 1;

// Events that are read at all: userspace leaves out some where reading costs too much.
volatile __u32 wanted = (1u << EVENTS) - 1;

#define PERF_EVENT_ARRAY(name)                                                                                         \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);                                                           \
		__type(key, __u32);                                                                                    \
		__type(value, __u32);                                                                                  \
		__uint(max_entries, 1);                                                                                \
	} name SEC(".maps")

PERF_EVENT_ARRAY(event_0);
PERF_EVENT_ARRAY(event_1);
PERF_EVENT_ARRAY(event_2);
PERF_EVENT_ARRAY(event_3);
PERF_EVENT_ARRAY(cgroup_switches);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cpu);
	__uint(max_entries, 1);
} cpus SEC(".maps");

// Row (cpu * 2 + bank) * slots_per_bank + slot.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct counts);
	__uint(max_entries, 1);
} sums SEC(".maps");

// Followed cgroups: id to slot.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, __u32);
	__uint(max_entries, 1);
} slots SEC(".maps");

struct pair {
	__u32 victim;
	__u32 by;
};

// Nanoseconds that one slot waited for another.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct pair);
	__type(value, __u64);
	__uint(max_entries, 1);
} waits SEC(".maps");

static __always_inline struct cgroup *probed_cgroup(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = 0;

	if (!v1)
		return BPF_CORE_READ(set, dfl_cgrp);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + bpf_core_field_offset(set->subsys) +
				      sizeof(css) * bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));
	return BPF_CORE_READ(css, cgroup);
}

// The slot of the deepest followed cgroup at or above the given one.
static __always_inline __u32 slot_of(struct cpu *cpu, struct machine *machine, struct cgroup *cgroup, __u64 id)
{
	struct cached *cached = &cpu->cache[id % CACHED];
	__u32 slot = OTHER, now = generation;
	__u64 at = id;
	int level;

	if (cached->id == id && cached->generation == now)
		return cached->slot;
	for (level = 0; level < DEPTH; level++) {
		struct cgroup_subsys_state *parent;
		__u32 *found = bpf_map_lookup_elem(&slots, &at);

		if (found) {
			slot = *found;
			break;
		}
		parent = BPF_CORE_READ(cgroup, self.parent);
		if (!parent)
			break;
		cgroup = BPF_CORE_READ(parent, cgroup);
		at = BPF_CORE_READ(cgroup, kn, id);
	}
	if (level == DEPTH) {
		machine->faults[FAULT_DEPTH]++;
		return OTHER;
	}
	cached->id = id;
	cached->generation = now;
	cached->slot = slot;
	return slot;
}

// The part of an interval that an event which is read in it cannot have missed.
static __always_inline __u64 certain(struct cpu *cpu, __u64 now)
{
	return now > cpu->read ? now - cpu->read : 0;
}

// One event's part of an interval. Returns the share of the interval in which it had a
// counter; *delta is how far it has moved then. An event is read some time
// after the clock, so that it saw the `least` of the interval for certain: from
// when the last reading was done until this one began.
static __always_inline __u32 advance(struct cpu *cpu, struct machine *machine, int event, long err,
				    struct bpf_perf_event_value *value, __u64 elapsed, __u64 least, __u64 *delta)
{
	struct bpf_perf_event_value base = cpu->base[event];
	__u32 bit = 1u << event;
	__u64 enabled, running, moved;

	if (err) {
		machine->faults[FAULT_READ]++;
		machine->broken |= bit;
		machine->error[event] = err;
		cpu->valid &= ~bit;
		return 0;
	}
	cpu->base[event] = *value;
	if (!(cpu->valid & bit)) {
		cpu->valid |= bit;
		return 0;
	}
	if (value->counter < base.counter || value->running < base.running || value->enabled < base.enabled) {
		machine->faults[FAULT_RESET]++;
		return 0;
	}
	moved = value->counter - base.counter;
	enabled = value->enabled - base.enabled;
	running = value->running - base.running;
	// The event's clock and ours differ a little.
	if (enabled + 1000 < least / 2) {
		machine->faults[FAULT_LOST]++;
		machine->broken |= bit;
		machine->error[event] = 0;
		return 0;
	}
	if (elapsed == 0)
		return 0; // a baseline
	machine->running[event] += running;
	if (moved > elapsed * 64 + (1 << 16)) {
		machine->faults[FAULT_ABSURD]++;
		return 0;
	}
	*delta = moved;
	return running < enabled ? running * WHOLE / enabled : WHOLE;
}

#define READ_EVENT(e)                                                                                                  \
	do {                                                                                                           \
		if (perf_events & ~wanted & (1u << (e))) {                                                             \
			share[e] = 0;                                                                                  \
		} else if (perf_events & (1u << (e))) {                                                                \
			struct bpf_perf_event_value value = {};                                                        \
			__u64 began = elapsed == 0 ? bpf_ktime_get_ns() : 0;                                           \
			long err = bpf_perf_event_read_value(&event_##e, BPF_F_CURRENT_CPU, &value, sizeof(value));    \
			if (elapsed == 0)                                                                              \
				cpu->read_cost[e] = bpf_ktime_get_ns() - began;                                        \
			share[e] = advance(cpu, machine, e, err, &value, elapsed, least, &delta[e]);                   \
			machine->enabled[e] += elapsed;                                                                \
		} else if (time_events & (1u << (e))) {                                                                \
			machine->enabled[e] += elapsed;                                                                \
			machine->running[e] += elapsed;                                                                \
		}                                                                                                      \
	} while (0)

static __always_inline void add_event(struct counts *to, int e, const __u64 *delta, __u64 on_cpu)
{
	to->events[e] += time_events & (1u << e) ? on_cpu : delta[e];
}

static __always_inline void add(struct counts *to, const __u64 *delta, const __u32 *share, __u64 on_cpu, bool whole,
				bool switched)
{
	__u32 pair = share[CYCLES] < share[INSTRUCTIONS] ? share[CYCLES] : share[INSTRUCTIONS];

	to->on_cpu += on_cpu;
	to->switches += switched;
	if (!whole)
		return;
	if (pair != 0) {
		to->counted += on_cpu * pair / WHOLE;
		add_event(to, CYCLES, delta, on_cpu);
		add_event(to, INSTRUCTIONS, delta, on_cpu);
	}
	if (share[REF_CYCLES] != 0) {
		to->counted_ref += on_cpu * share[REF_CYCLES] / WHOLE;
		add_event(to, REF_CYCLES, delta, on_cpu);
	}
	if (share[MISSES] != 0) {
		to->counted_misses += on_cpu * share[MISSES] / WHOLE;
		add_event(to, MISSES, delta, on_cpu);
	}
}

static __always_inline struct counts *row_of(__u32 nr, __u32 bank, __u32 slot)
{
	__u32 key = (nr * 2 + bank) * slots_per_bank + slot;

	return bpf_map_lookup_elem(&sums, &key);
}

// Charges what the events have moved since the last reading, and `run` of the
// time, to one slot. The rest of the time is Other's: idling, and what the
// scheduler itself takes between one task and the next.
//
// Unless the slot had the CPU for the `whole` time, the events are nobody's.
static __always_inline void charge(struct cpu *cpu, __u32 nr, __u32 bank, __u32 slot, __u64 now, __u64 run,
				   bool whole, bool switched)
{
	struct machine *machine = &cpu->machine[bank];
	__u64 delta[EVENTS] = {}, none[EVENTS] = {}, elapsed = 0, least, rest = 0;
	__u32 share[EVENTS] = {WHOLE, WHOLE, WHOLE, WHOLE};
	struct counts *row;

	if (cpu->time == 0) {
		cpu->owed = 0;
		switched = false;
		run = 0;
		cpu->time = now;
	} else if (now > cpu->time) {
		elapsed = now - cpu->time;
		cpu->time = now;
	}
	least = certain(cpu, now);
	READ_EVENT(0);
	READ_EVENT(1);
	READ_EVENT(2);
	READ_EVENT(3);
	cpu->read = bpf_ktime_get_ns();
	if (slot == OTHER || run > elapsed + MAX_SKEW)
		run = slot == OTHER ? 0 : elapsed;
	if (run > elapsed) {
		cpu->owed += run - elapsed;
	} else {
		rest = elapsed - run;
		if (rest >= cpu->owed) {
			rest -= cpu->owed;
			cpu->owed = 0;
		} else {
			cpu->owed -= rest;
			rest = 0;
		}
	}
	if (!whole)
		machine->unseen += elapsed;
	if (slot == OTHER) {
		run = rest;
		rest = 0;
	}
	add(&machine->counts, delta, share, run, whole, switched);
	row = row_of(nr, bank, slot);
	if (row)
		add(row, delta, share, run, whole, switched);
	if (rest == 0)
		return;
	add(&machine->counts, none, share, rest, whole, false);
	row = row_of(nr, bank, OTHER);
	if (row)
		add(row, none, share, rest, whole, false);
}

// The time since the last reading, without what a hypervisor or interrupts took.
static __always_inline __u64 available(struct cpu *cpu, __u64 now, __u64 offset)
{
	__u64 elapsed = now - cpu->time, lost = offset - cpu->offset;

	return cpu->time != 0 && now > cpu->time && elapsed > lost ? elapsed - lost : 0;
}

// How long a task ran since it was last charged, by the scheduler's own account,
// which leaves out what a hypervisor or interrupts took. A task that leaves is
// in that account until `accounted`; one that runs on is only as of the last
// tick, and the clock says the rest.
static __always_inline __u64 ran(struct cpu *cpu, __u64 now, __u64 accounted, __u64 offset, bool leaves)
{
	__u64 known = 0, guess;

	if (cpu->started != 0 && accounted > cpu->started)
		known = accounted - cpu->started;
	if (cpu->started != 0 && leaves)
		return known;
	guess = available(cpu, now, offset);
	return guess > known ? guess : known;
}

// The same for a task that came at a switch that was not seen: what is known of
// its last turn. `executed` begins anew when its affinity or cgroup changes,
// `since` its arrival may hold stolen time; neither is more than the turn.
static __always_inline __u64 last_turn(struct cpu *cpu, __u64 now, __u64 since, __u64 executed, __u64 offset)
{
	__u64 lost = offset - cpu->offset, most = available(cpu, now, offset);

	since = since > lost ? since - lost : 0;
	if (executed < since)
		executed = since;
	return executed < most ? executed : most;
}

// Says whether cgroup switches since the last reading were other than expected:
// the kernel does not run a perf event's program while another program or map
// operation is on the way on the same CPU.
static __always_inline bool missed(struct cpu *cpu, __u64 now, __u64 expected)
{
	struct bpf_perf_event_value value = {};
	__u64 was = cpu->trigger, enabled = cpu->trigger_enabled;

	if (bpf_perf_event_read_value(&cgroup_switches, BPF_F_CURRENT_CPU, &value, sizeof(value))) {
		cpu->trigger_enabled = 0;
		return true;
	}
	cpu->trigger = value.counter;
	cpu->trigger_enabled = value.enabled;
	if (cpu->time == 0 || now <= cpu->time)
		return false;
	return value.counter != was + expected || value.enabled - enabled + 1000 < certain(cpu, now) / 2;
}

static __always_inline void account_cost(struct cpu *cpu, __u64 since)
{
	if (cpu->runs++ % CACHED == 0) {
		cpu->cost += bpf_ktime_get_ns() - since;
		cpu->sampled++;
	}
}

// Charges the wait of the task that comes, which began when it was queued.
static __always_inline void charge_wait(struct cpu *cpu, __u32 nr, __u32 bank, struct task_struct *prev,
					struct task_struct *next, __u32 by, __u32 victim)
{
	struct machine *machine = &cpu->machine[bank];
	__u64 queued = next->sched_info.last_queued, clock = next->se.cfs_rq->rq->clock, wait;
	struct pair pair = {.victim = victim, .by = by};
	struct counts *row;
	__u64 *sum;

	if (cpu->queue_start == 0)
		cpu->queue_start = clock;
	if (queued == 0 || queued >= clock)
		return;
	if (queued < cpu->queue_start)
		queued = cpu->queue_start;
	wait = clock - queued;
	machine->counts.wait += wait;
	row = row_of(nr, bank, victim);
	if (row)
		row->wait += wait;
	if (!by_cause || victim == by || victim == OTHER || prev->pid == 0)
		return;
	sum = bpf_map_lookup_elem(&waits, &pair);
	if (sum)
		__sync_fetch_and_add(sum, wait);
	else if (bpf_map_update_elem(&waits, &pair, &wait, BPF_NOEXIST))
		machine->faults[FAULT_WAITS]++;
}

// Charges the cgroup of prev, which leaves the CPU to next. `seen` says that the
// program has run at every switch since the last reading; if it has not, prev's
// own last turn is known, and what went before it is Other's.
static __always_inline void leave(struct cpu *cpu, __u32 nr, __u32 bank, __u32 slot, __u64 now,
				  struct task_struct *prev, struct task_struct *next, bool seen)
{
	struct rq *rq = prev->se.cfs_rq->rq;
	__u64 offset = rq->clock - rq->clock_task, run = 0;

	if (!seen)
		run = last_turn(cpu, now, rq->clock - prev->sched_info.last_arrival,
				prev->se.sum_exec_runtime - prev->se.prev_sum_exec_runtime, offset);
	else if (slot != OTHER)
		run = ran(cpu, now, prev->se.exec_start, offset, true);
	charge(cpu, nr, bank, slot, now, run, seen, true);
	cpu->started = next->se.exec_start;
	cpu->offset = offset;
}

static __always_inline int on_switch(struct task_struct *prev, struct task_struct *next, bool with_waits)
{
	__u32 nr = bpf_get_smp_processor_id(), bank, slot, victim;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &nr);
	struct machine *machine;
	struct cgroup *from, *to;
	__u64 from_id, now;
	bool seen;

	if (!cpu || !cpu->on)
		return 0;
	// Kernels have been seen to leave out the tracepoint at some switches.
	seen = cpu->running == (__u32)prev->pid || cpu->running == UNKNOWN;
	cpu->running = next->pid;
	if (v1) {
		from = probed_cgroup(prev);
		to = probed_cgroup(next);
	} else {
		from = prev->cgroups->dfl_cgrp;
		to = next->cgroups->dfl_cgrp;
	}
	if (from == to && seen && (!with_waits || next->pid == 0))
		return 0;
	bank = cpu->bank & 1;
	machine = &cpu->machine[bank];
	from_id = v1 ? BPF_CORE_READ(from, kn, id) : from->kn->id;
	slot = slot_of(cpu, machine, from, from_id);
	victim = slot;
	if (from != to) {
		__u64 to_id = v1 ? BPF_CORE_READ(to, kn, id) : to->kn->id;

		victim = slot_of(cpu, machine, to, to_id);
	}
	// Between two cgroups of one slot there is nothing to charge: most switches of a
	// machine of which few cgroups are followed.
	if (slot == victim && seen && !with_waits)
		return 0;
	now = bpf_ktime_get_ns();
	if (with_waits && next->pid != 0)
		charge_wait(cpu, nr, bank, prev, next, slot, victim);
	if (!seen)
		machine->faults[FAULT_MISSED]++;
	if (slot != victim || !seen)
		leave(cpu, nr, bank, slot, now, prev, next, seen);
	account_cost(cpu, now);
	return 0;
}

SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	return on_switch((struct task_struct *)ctx[1], (struct task_struct *)ctx[2], false);
}

SEC("tp_btf/sched_switch")
int sched_switch_waits(__u64 *ctx)
{
	return on_switch((struct task_struct *)ctx[1], (struct task_struct *)ctx[2], true);
}

SEC("perf_event")
int cgroup_switch(void *ctx)
{
	__u32 nr = bpf_get_smp_processor_id(), bank, slot;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &nr);
	struct task_struct *task;
	struct machine *machine;
	struct cgroup *cgroup;
	__u64 now;
	bool seen;

	if (!cpu || !cpu->on)
		return 0;
	bank = cpu->bank & 1;
	machine = &cpu->machine[bank];
	task = bpf_get_current_task_btf();
	cgroup = task->cgroups->dfl_cgrp;
	slot = slot_of(cpu, machine, cgroup, cgroup->kn->id);
	now = bpf_ktime_get_ns();
	seen = !missed(cpu, now, 1);
	if (!seen)
		machine->faults[FAULT_MISSED]++;
	leave(cpu, nr, bank, slot, now, task, task->se.cfs_rq->rq->curr, seen);
	account_cost(cpu, now);
	return 0;
}

// Charges the task that is running here, which runs on.
static __always_inline void charge_running(struct cpu *cpu, __u32 nr)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 bank = cpu->bank & 1;
	struct machine *machine = &cpu->machine[bank];
	struct cgroup *cgroup = probed_cgroup(task);
	__u32 slot = slot_of(cpu, machine, cgroup, BPF_CORE_READ(cgroup, kn, id));
	struct rq *rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	__u64 offset = BPF_CORE_READ(rq, clock) - BPF_CORE_READ(rq, clock_task);
	__u64 stopped = BPF_CORE_READ(task, se.exec_start), now = bpf_ktime_get_ns();
	__u64 run = ran(cpu, now, stopped, offset, false);
	bool seen;

	if (by_cgroup_switches) {
		seen = !missed(cpu, now, 0);
	} else {
		__u32 pid = BPF_CORE_READ(task, pid);

		seen = cpu->running == pid || cpu->running == UNKNOWN;
		cpu->running = pid;
	}
	if (!seen) {
		machine->faults[FAULT_MISSED]++;
		run = last_turn(cpu, now, BPF_CORE_READ(rq, clock) - BPF_CORE_READ(task, sched_info.last_arrival),
				BPF_CORE_READ(task, se.sum_exec_runtime) - BPF_CORE_READ(task, se.prev_sum_exec_runtime),
				offset);
	}
	charge(cpu, nr, bank, slot, now, run, seen, false);
	if (!seen)
		cpu->started = stopped;
	else if (cpu->started != 0)
		cpu->started += run;
	cpu->offset = offset;
}

// Runs where a timer goes off, the scheduler's tick among them. A task that leaves its
// CPU to nobody is charged once in a while, so that one missed switch does not void what
// it did before.
SEC("tp_btf/hrtimer_expire_entry")
int tick(__u64 *ctx)
{
	__u32 nr = bpf_get_smp_processor_id();
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &nr);
	struct hrtimer *timer = (struct hrtimer *)ctx[0];
	__u64 now;

	// A busy CPU was interrupted amid a charge; a soft timer could be, by flush().
	if (!cpu || !cpu->on || cpu->busy || timer->is_soft)
		return 0;
	now = bpf_ktime_get_ns();
	if (cpu->time == 0 || now < cpu->time + MAX_INTERVAL)
		return 0;
	if (BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), pid) == 0)
		return 0; // an idle CPU has nothing to lose
	charge_running(cpu, nr);
	account_cost(cpu, now);
	return 0;
}

// Run on one CPU by userspace: charges the task that is running there. START and READ
// then leave the bank that was in use to userspace; STOP closes the gate.
SEC("raw_tp/sched_switch")
int flush(__u64 *ctx)
{
	__u32 nr = bpf_get_smp_processor_id();
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &nr);
	__u64 mode = ctx[0];

	if (!cpu)
		return 0;
	cpu->busy = 1;
	barrier();
	if (mode == START) {
		cpu->time = 0;
		cpu->started = 0;
		cpu->queue_start = 0;
		cpu->running = UNKNOWN;
		cpu->on = 1;
	}
	if (cpu->on)
		charge_running(cpu, nr);
	if (mode == STOP)
		cpu->on = 0;
	if (mode == READ || mode == START)
		cpu->bank = (cpu->bank & 1) ^ 1;
	barrier();
	cpu->busy = 0;
	return 0;
}
